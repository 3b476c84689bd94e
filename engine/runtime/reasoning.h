// Reasoning: what a model thinks before its answer, where the request says how much that may be
// (options.thinking_tokens).
//
//   "<think>\n"  Well ... \n</think>\n\n  {"size": 3}
//    the prompt  reasoning    closing     the answer, which max_tokens and a constraint are for
//
// It ends where the model writes the mark that ends it, where the model would end the whole answer,
// and where its tokens are spent: then the mark is written for the model.
#ifndef LM_ENGINE_RUNTIME_REASONING_H_
#define LM_ENGINE_RUNTIME_REASONING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/runtime/request.h"
#include "engine/text/chat/thinking_filter.h"
#include "engine/text/tokenizer.h"

namespace lm {

class Reasoning {
 public:
  // Whether an answer may have one. A constrained one only where the prompt has begun it: what else
  // the model writes would be the answer.
  static bool IsWanted(const RequestSpec& spec);
  // Of it, with what ends it and follows. 0: it is not wanted.
  static int64_t MostTokens(const RequestSpec& spec);
  // RequestSpec::closing_tokens. InvalidArgument for a mark of more than kMostClosingTokens, or of
  // none.
  static absl::StatusOr<int32_t> CountClosing(const Tokenizer& tokenizer, const RequestSpec& spec);

  // REQUIRES: IsWanted(spec); *tokenizer outlives this.
  Reasoning(const Tokenizer* tokenizer, const RequestSpec& spec);

  struct Turn {
    std::vector<int32_t> tokens = {};  // that follow
    bool ends = false;                 // the answer comes behind them
    int32_t of_answer = 0;             // then: how many of the tokens belong to the answer already
  };
  // The model has picked this token. FailedPrecondition where the vocabulary cannot spell the mark
  // that has to follow.
  absl::StatusOr<Turn> Take(int32_t token);

  // Whether there is any, yet: a free answer may come without.
  bool has_begun() const { return !filter_.is_at_beginning() && !answers_at_once_; }
  // Tokens that the reasoning may still have; 0 or less where they are spent.
  int32_t left() const { return left_; }

 private:
  bool Read(int32_t token);
  absl::StatusOr<Turn> EndByModel(int32_t token) const;
  absl::StatusOr<Turn> Close(std::vector<int32_t> tokens);
  bool HasLines() const;

  const Tokenizer& tokenizer_;
  const std::shared_ptr<const ThinkingMarks> marks_;
  const bool constrained_;
  const bool has_line_;  // the template begins it on a line of its own
  int32_t left_;
  ThinkingFilter filter_;
  std::optional<char> first_;  // byte of it
  size_t taken_ = 0;           // of the last token's bytes: the ones behind are the answer's
  int32_t missing_ = 0;        // bytes of its last character
  int32_t behind_ = 0;         // tokens of white space between the mark and a free answer
  bool answers_at_once_ = false;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_REASONING_H_
