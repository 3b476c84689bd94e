// What a model file says about its vocabulary, as plain data. model/load_vocabulary fills it from a
// GGUF's tokenizer.* keys; Tokenizer::Create turns it into a tokenizer.
#ifndef LM_ENGINE_TEXT_VOCABULARY_H_
#define LM_ENGINE_TEXT_VOCABULARY_H_

#include <cstdint>
#include <string>
#include <vector>

namespace lm {

// A token's role, with GGUF's numbers (tokenizer.ggml.token_type).
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // markers such as <|im_start|>; never produced by row text
  kUserDefined = 4,  // matched whole in any text before the tokenizer proper runs
  kUnused = 5,
  kByte = 6,  // <0x0A> of a SentencePiece vocabulary
};

// Where a vocabulary with add_space_prefix puts a space before words.
enum class SpacePrefix : uint8_t {
  kEach,     // at the beginning of a text, and behind each special token
  kMissing,  // there, but where a space is already ("always" of transformers' Metaspace)
  kFirst,    // likewise, but behind no special token, spelled out in the text ("first")
};

struct Vocabulary {
  // tokenizer.ggml.model: "gpt2" (byte-level BPE), "llama" (SentencePiece-style BPE by score),
  // "gemma4" and "whitespace" (the same by rank), "bert" (WordPiece), "t5" (Unigram), "rwkv" (the
  // longest token at each place) or "plamo2" (CheapestTokens).
  std::string model;
  // tokenizer.ggml.pre: the family of the BPE pre-tokenizer's split, e.g. "llama-bpe".
  std::string pre;

  std::vector<std::string> tokens;
  std::vector<TokenType> types;     // as many as tokens
  std::vector<float> scores;        // as many as tokens for "llama", "t5" and "plamo2"; else empty
  std::vector<std::string> merges;  // "left right", best first, of what merges by rank; else empty

  // Token ids, or -1.
  int32_t bos = -1;
  int32_t eos = -1;
  int32_t eot = -1;
  int32_t eom = -1;
  std::vector<int32_t> more_eos;  // end an answer as eos does
  int32_t unknown = -1;
  int32_t padding = -1;
  int32_t separator = -1;
  // Whether bos and eos are the file's, and no default: those may be any word, and templates are
  // told nothing of them.
  bool states_bos = true;
  bool states_eos = true;

  bool add_bos = false;
  bool add_eos = false;            // "bert": the separator, always
  bool add_separator = false;      // between two texts, besides the EOS of the first
  bool add_space_prefix = true;    // "llama" and "t5"
  SpacePrefix space_prefix = SpacePrefix::kEach;  // "llama"
  bool merge_spaces = false;       // "t5": runs of spaces are one, those at the end none
  bool lower_case = true;          // "bert" and "whitespace"
  bool strip_accents = true;       // "bert"
  std::string character_map = "";  // "t5": see CharacterMap; empty: none

  // Markers that swallow the ASCII whitespace before or after them (few models have any).
  std::vector<int32_t> strip_before;
  std::vector<int32_t> strip_after;

  // Tokens that the model never says, whatever its logits are: of images, or never trained. Ids
  // outside of the vocabulary mean nothing.
  std::vector<int32_t> suppressed;

  std::string chat_template;  // Jinja source, a name that stands for it, or empty
  // Text in which {query} and {document} stand for the texts that a model ranks; or empty.
  std::string rerank_template;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_VOCABULARY_H_
