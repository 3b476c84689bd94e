// WordPiece (tokenizer.ggml.model "bert"): the text falls apart into words at spaces, punctuation
// and Chinese characters; a word is the longest token that begins it, then the longest that goes
// on, and so forth, or the unknown token where some part of it is none. Of words the vocabulary's
// names begin with U+2581.
//
// Schuster and Nakajima 2012, "Japanese and Korean voice search"; the words are those of BERT
// (Devlin et al. 2019, arXiv 1810.04805), in lower case and without accents where the model is
// uncased.
#ifndef LM_ENGINE_TEXT_WORD_PIECE_H_
#define LM_ENGINE_TEXT_WORD_PIECE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/name_trie.h"
#include "engine/text/text_model.h"
#include "engine/text/token_index.h"
#include "engine/text/vocabulary.h"

namespace lm {

class WordPiece : public TextModel {
 public:
  // InvalidArgument for a vocabulary without an unknown token. REQUIRES: both outlive this.
  static absl::StatusOr<std::unique_ptr<WordPiece>> Create(const Vocabulary& vocabulary,
                                                           const TokenIndex& index);

  absl::Status Encode(absl::string_view text, bool begins,
                      std::vector<int32_t>* ids) const override;
  // A space stands before what begins a word.
  std::string DecodeName(absl::string_view name) const override;

 private:
  explicit WordPiece(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  absl::Status EncodeWord(absl::string_view word, std::vector<int32_t>* ids) const;

  const Vocabulary& vocabulary_;
  NameTrie names_;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_WORD_PIECE_H_
