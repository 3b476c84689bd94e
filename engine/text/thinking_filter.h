// Takes a model's reasoning out of its answer: "<think> ... </think>" at the answer's beginning,
// and the white space around it.
//
//   ThinkingFilter filter(/*inside=*/BeginsThinking(prompt));
//   text += filter.Append(piece);  ...
//   text += filter.Finish();
#ifndef LM_ENGINE_TEXT_THINKING_FILTER_H_
#define LM_ENGINE_TEXT_THINKING_FILTER_H_

#include <string>

#include "absl/strings/string_view.h"

namespace lm {

class ThinkingFilter {
 public:
  // `inside`: the prompt has begun it (some templates do). A reasoning that never ends has no
  // answer behind it.
  explicit ThinkingFilter(bool inside) : state_(inside ? State::kInside : State::kBeginning) {}

  // What of the text so far is now known to be answer.
  std::string Append(absl::string_view piece);
  // The rest, at the end.
  std::string Finish();

 private:
  enum class State {
    kBeginning,  // nothing yet but what may become "<think>"
    kInside,
    kBehind,  // nothing yet but white space
    kAnswer,
  };
  State state_;
  std::string held_;
};

// Whether a prompt with such an end leaves the model in the middle of its reasoning.
bool BeginsThinking(absl::string_view prompt_end);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_THINKING_FILTER_H_
