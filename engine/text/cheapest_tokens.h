// PLaMo 2's tokenizer (tokenizer.ggml.model "plamo2"): of all ways to cut the text into tokens the
// one whose scores, in units of 1/10000, have the greatest sum; of equal ones that whose first
// token is the longest, and so forth. A character that is taken for no token is the tokens of its
// bytes, at a score of -1000. (Imajo et al. 2025, arXiv 2509.04897.)
#ifndef LM_ENGINE_TEXT_CHEAPEST_TOKENS_H_
#define LM_ENGINE_TEXT_CHEAPEST_TOKENS_H_

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/name_trie.h"
#include "engine/text/text_model.h"
#include "engine/text/token_index.h"
#include "engine/text/vocabulary.h"

namespace lm {

class CheapestTokens : public TextModel {
 public:
  // InvalidArgument for a vocabulary without a token for each byte.
  static absl::StatusOr<std::unique_ptr<CheapestTokens>> Create(const Vocabulary& vocabulary,
                                                                const TokenIndex& index);

  absl::Status Encode(absl::string_view text, bool begins,
                      std::vector<int32_t>* ids) const override;
  std::string DecodeName(absl::string_view name) const override { return std::string(name); }

 private:
  CheapestTokens() = default;

  NameTrie names_;
  std::vector<int64_t> costs_;      // of each token
  std::vector<uint32_t> sizes_;     // bytes of its name
  std::array<int32_t, 256> bytes_;  // their tokens
  size_t longest_ = 0;              // bytes of a name in the trie
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_CHEAPEST_TOKENS_H_
