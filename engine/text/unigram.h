// Unigram (tokenizer.ggml.model "t5"): of all ways to cut the text into tokens the one whose
// scores, logarithms of probabilities, have the greatest sum. What no token begins with is an
// unknown token, worse than the worst; neighbours of these are one.
//
// Kudo 2018, "Subword regularization", arXiv 1804.10959.
#ifndef LM_ENGINE_TEXT_UNIGRAM_H_
#define LM_ENGINE_TEXT_UNIGRAM_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/character_map.h"
#include "engine/text/name_trie.h"
#include "engine/text/text_model.h"
#include "engine/text/token_index.h"
#include "engine/text/vocabulary.h"

namespace lm {

class Unigram : public TextModel {
 public:
  // InvalidArgument for a vocabulary without an unknown token, or a damaged character map.
  // REQUIRES: both outlive this.
  static absl::StatusOr<std::unique_ptr<Unigram>> Create(const Vocabulary& vocabulary,
                                                         const TokenIndex& index);

  // The text is normalised; spaces become U+2581, one before the first word too where the text
  // `begins` and the vocabulary says so.
  absl::Status Encode(absl::string_view text, bool begins,
                      std::vector<int32_t>* ids) const override;
  std::string DecodeName(absl::string_view name) const override;

 private:
  class Lattice;

  explicit Unigram(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  absl::StatusOr<std::string> Normalise(absl::string_view text, bool begins) const;

  const Vocabulary& vocabulary_;
  CharacterMap character_map_;
  NameTrie names_;
  double unknown_score_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_UNIGRAM_H_
