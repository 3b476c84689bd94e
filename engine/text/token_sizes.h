// TokenSizes: how the tokens of a text lie in it, for who cuts it to so many.
//
//   const TokenizerSizes sizes(tokenizer);
//   ASSIGN_OR_RETURN(const std::vector<size_t> bytes, sizes.Of("Hello there"));   // {5, 6}
#ifndef LM_ENGINE_TEXT_TOKEN_SIZES_H_
#define LM_ENGINE_TEXT_TOKEN_SIZES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/status_macros.h"
#include "engine/text/tokenizer.h"

namespace lm {

class TokenSizes {
 public:
  virtual ~TokenSizes() = default;

  // The bytes of each token of a plain text, in their order; of those that only are counted
  // somewhere, about so many each.
  virtual absl::StatusOr<std::vector<size_t>> Of(absl::string_view text) const = 0;
  // The same of a text that is to be cut where it has more than `most` tokens. Of one that has
  // surely more, about so many bytes each will do, where counting costs something.
  virtual absl::StatusOr<std::vector<size_t>> ToCut(absl::string_view text, int64_t most) const {
    (void)most;
    return Of(text);
  }
  // Whether the tokens lie in the text one behind the other, so that its first bytes are the first
  // tokens'; else only how many there are counts.
  virtual bool AreParts() const { return true; }
};

// As Tokenizer::EncodePlain makes them.
class TokenizerSizes : public TokenSizes {
 public:
  // REQUIRES: it outlives this.
  explicit TokenizerSizes(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  absl::StatusOr<std::vector<size_t>> Of(absl::string_view text) const override {
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer_.EncodePlain(text));
    std::vector<size_t> sizes;
    sizes.reserve(ids.size());
    for (const int32_t id : ids) sizes.push_back(tokenizer_.TokenBytes(id).size());
    return sizes;
  }
  // Those of encoders normalise a text, and have one token for all that they do not know.
  bool AreParts() const override {
    const std::string& model = tokenizer_.vocabulary().model;
    return model != "bert" && model != "t5";
  }

 private:
  const Tokenizer& tokenizer_;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TOKEN_SIZES_H_
