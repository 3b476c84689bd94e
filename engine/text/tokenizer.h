// Text to tokens and back.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, Tokenizer::Create(vocabulary));
//   std::vector<int32_t> ids;
//   RETURN_IF_ERROR(tokenizer->Encode({{"<|im_start|>user\n", TextKind::kMarkup},
//                                      {row_text, TextKind::kInput}}, &ids));
//
// A text comes in pieces. In markup (a chat template's own words) control tokens are recognised; in
// plain text and input (a row of somebody's table) they never are, whatever it spells. Neighbouring
// pieces between two control tokens are encoded as one string, so that the cut between markup and
// plain text does not change the ids.
#ifndef LM_ENGINE_TEXT_TOKENIZER_H_
#define LM_ENGINE_TEXT_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/text/special_tokens.h"
#include "engine/text/text_model.h"
#include "engine/text/text_piece.h"
#include "engine/text/token_index.h"
#include "engine/text/vocabulary.h"

namespace lm {

// Whether there is an implementation of that tokenizer.ggml.model; and what says that there is
// none.
bool IsKnownTextModel(absl::string_view name);
absl::Status UnknownTextModel(absl::string_view name);

// Immutable after Create; thread-safe.
class Tokenizer {
 public:
  // InvalidArgument, naming what is wrong, for an inconsistent vocabulary; Unimplemented, naming
  // it, for a tokenizer.ggml.model or tokenizer.ggml.pre that is not known.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(Vocabulary vocabulary);
  ~Tokenizer() = default;

  // Appends the tokens of `pieces` to *ids, without BOS or EOS. Linear in the text's length (times
  // a logarithm), with constant stack. InvalidArgument for a piece that is not valid UTF-8, with
  // the byte offset in that piece, and for texts of 512 MiB and more. A byte-level vocabulary that
  // lacks some bytes (a few control characters, leads of unassigned planes) leaves those out, like
  // the tools it comes from.
  // `behind_bos`: the text says BOS before them, and *ids has it.
  absl::Status Encode(absl::Span<const TextPiece> pieces, std::vector<int32_t>* ids,
                      bool behind_bos = false) const;

  // Appends the tokens of a text that follows other text without a special token between: the
  // vocabulary's space prefix is not put before it. Errors as those of Encode.
  absl::Status EncodeInside(absl::string_view text, std::vector<int32_t>* ids,
                            TextKind kind = TextKind::kPlain) const;

  // What the model is fed for a plain text: BOS where the model adds one, its tokens, LastToken().
  absl::StatusOr<std::vector<int32_t>> EncodePlain(absl::string_view text) const;

  // What a model is fed that ranks texts, for how well `second` answers `first`: as its template
  // for that says, or both as plain texts, with a separator between where the model adds one.
  absl::StatusOr<std::vector<int32_t>> EncodePair(absl::string_view first,
                                                  absl::string_view second) const;

  // Whether Encode puts a space before a text (see SpacePrefix), which is not part of it.
  bool PutsSpaceFirst() const {
    if (vocabulary_.model == "llama" || vocabulary_.model == "t5") {
      return vocabulary_.add_space_prefix;
    }
    return vocabulary_.model == "bert";
  }

  // What the model adds behind a plain text: EOS, or a separator; -1: nothing.
  int32_t LastToken() const {
    if (vocabulary_.model == "bert") return vocabulary_.separator;
    return vocabulary_.add_eos ? vocabulary_.eos : -1;
  }

  // The text of tokens that EncodePlain made (of "bert" and "t5" what the normalised text says).
  // Differs from joining TokenBytes where Encode put a space before the text, and behind each
  // user-defined token ("bert", and vocabularies with add_space_prefix): it is taken away again,
  // and so is the text's own, where that has kept Encode from putting one. What a model writes
  // after a prompt is not such a text: use Detokenizer, which keeps every space.
  std::string DecodePlain(absl::Span<const int32_t> ids) const;

  // The bytes a token stands for; empty for control and unknown tokens and ids outside the
  // vocabulary. Bytes of one token need not be whole characters: see Detokenizer.
  absl::string_view TokenBytes(int32_t id) const;

  // The token's name in the vocabulary, e.g. "<|im_end|>" or "Ġthe"; empty outside of it.
  absl::string_view TokenName(int32_t id) const;
  // The id of that name, or -1.
  int32_t FindToken(absl::string_view name) const { return index_.Find(name); }

  // Control and unknown tokens: those that only markup can become.
  bool IsControl(int32_t id) const;
  // EOS, EOT and the other tokens that end an answer (<|im_end|>, <|eot_id|>, <|endoftext|>, ...).
  bool IsEndOfGeneration(int32_t id) const;

  // The tokens that the model may say, as a mask (token i: bit i % 64 of word i / 64), which has a
  // bit set; empty: all of them.
  absl::Span<const uint64_t> SayableTokens() const { return sayable_; }
  bool IsSayable(int32_t id) const {
    return sayable_.empty() || (Contains(id) && (sayable_[id / 64] >> (id % 64) & 1) != 0);
  }

  int32_t size() const { return static_cast<int32_t>(vocabulary_.tokens.size()); }
  // What Create was given, except that tokens which end an answer (and those of fill-in-the-middle)
  // are control tokens whatever their type was, and that the merges are gone.
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Tokenizer() = default;
  // Whether words behind a special token begin as a text does.
  bool BeginsBehindSpecial() const { return vocabulary_.space_prefix != SpacePrefix::kFirst; }
  bool Contains(int32_t id) const { return id >= 0 && id < size(); }
  absl::Status EncodePieces(absl::Span<const TextPiece> pieces, bool begins,
                            std::vector<int32_t>* ids) const;
  std::string BytesOf(int32_t id) const;
  absl::Status LeaveOutSuppressed();

  Vocabulary vocabulary_;
  TokenIndex index_;
  std::unique_ptr<TextModel> model_;
  std::unique_ptr<SpecialTokens> special_tokens_;
  std::vector<int32_t> answer_ends_;  // ascending
  std::vector<uint64_t> sayable_;
  std::string bytes_;                 // of all tokens
  std::vector<size_t> byte_offsets_;  // token i is [i, i + 1)
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TOKENIZER_H_
