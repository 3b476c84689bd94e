// GeneratorSizes: how many tokens a generator's texts have. Its own tokenizer tells, where that is
// here; else its server is asked; where that does not tell either, a token is counted for each
// byte: a text never has more.
//
//   const GeneratorSizes sizes(generator);
//   ASSIGN_OR_RETURN(const int64_t tokens, sizes.AtMost(text, 4000));
//   if (tokens <= 4000) ...                                            // it fits
#ifndef LM_ENGINE_RUNTIME_GENERATOR_SIZES_H_
#define LM_ENGINE_RUNTIME_GENERATOR_SIZES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/runtime/generator.h"
#include "engine/text/token_sizes.h"
#include "engine/text/tokenizer.h"

namespace lm {

// Not thread-safe.
class GeneratorSizes : public TokenSizes {
 public:
  // REQUIRES: it outlives this.
  explicit GeneratorSizes(const Generator& generator);

  // Whether the tokens are known here.
  bool exact() const { return tokenizer_ != nullptr; }
  // Whether a tokenizer or a server has told the tokens of every text so far.
  bool counts() const { return counts_; }

  // Errors: those of the tokenizer; Cancelled where a server is asked, and the thread's scope
  // (checkpoint.h) interrupted; and what else comes of asking it.
  absl::StatusOr<std::vector<size_t>> Of(absl::string_view text) const override;
  // No server is asked of a text that IsMore(); its tokens are then a little shorter than those of
  // the last one that was counted.
  absl::StatusOr<std::vector<size_t>> ToCut(absl::string_view text, int64_t most) const override;
  bool AreParts() const override {
    return tokenizer_ == nullptr || TokenizerSizes(*tokenizer_).AreParts();
  }

  // As many tokens as a plain text has, or more where that is `enough` or less: of a text of no
  // more bytes no server is asked.
  absl::StatusOr<int64_t> AtMost(absl::string_view text, int64_t enough) const;

  // As many tokens as a text has; where they are not known here, about so many, as the last text
  // had that the server has counted, and before that one for each byte.
  absl::StatusOr<int64_t> About(absl::string_view text) const;
  // What is counted next is of texts that may be like no other before.
  void Forget() const { bytes_per_token_ = 0; }
  // Whether a text of About() so many has more than `most`.
  bool IsMore(int64_t about, int64_t most) const;

 private:
  // As its server tells, or as many as it has bytes.
  absl::StatusOr<int64_t> Ask(absl::string_view text) const;

  const Generator& generator_;
  const Tokenizer* const tokenizer_;  // null: not known here
  mutable bool counts_ = true;
  mutable double bytes_per_token_ = 0;  // of the last text that a server has counted; 0: none
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_GENERATOR_SIZES_H_
