// Takes a model's reasoning out of its answer: what stands at the answer's beginning between two
// marks of the model's ("<think>" and "</think>", "[THINK]" and "[/THINK]", Harmony's and Gemma's
// channels, ...), and the white space around it.
//
//   ThinkingFilter filter(marks, /*template_end=*/"<|im_start|>assistant\n<think>\n");
//   text += filter.Append(piece);  ...
//   text += filter.Finish();
#ifndef LM_ENGINE_TEXT_CHAT_THINKING_FILTER_H_
#define LM_ENGINE_TEXT_CHAT_THINKING_FILTER_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/text/chat/thinking_marks.h"

namespace lm {

class ThinkingFilter {
 public:
  // A template that ends a prompt with such words may have begun the reasoning. One that never ends
  // has no text behind it.
  ThinkingFilter(std::shared_ptr<const ThinkingMarks> marks, absl::string_view template_end);

  // What of the text so far is now known to be answer. Control tokens that are marks
  // (ThinkingMarks::IsMark) come as pieces, too, spelled out: the ones within the answer are left
  // out.
  std::string Append(absl::string_view piece, bool is_mark = false);
  // The rest, at the end.
  std::string Finish();

  // Whether nothing tells yet which of both comes.
  bool is_at_beginning() const { return state_ == State::kBeginning; }
  // Whether what has come is reasoning whose end has not, and whether it is reasoning only.
  bool is_inside() const { return state_ == State::kInside; }
  bool awaits_answer() const { return is_inside() || state_ == State::kBehind; }
  // The mark that ends the reasoning which has begun.
  absl::string_view end_mark() const { return end_; }

 private:
  enum class State {
    kBeginning,  // nothing yet but what may become a mark
    kInside,
    kBehind,  // nothing yet but white space
    kAnswer,
  };
  bool Begin();

  const std::shared_ptr<const ThinkingMarks> marks_;
  State state_ = State::kBeginning;
  std::string held_;
  std::string plain_;      // at the beginning: held_ without control tokens
  absl::string_view end_;  // the mark that is looked for inside
};

// What of a whole answer is behind the mark that ends its reasoning, where the prompt has begun
// that, and nobody says so: "Well ...\n</think>\n\nYes." Else the answer. A mark in quotes is none.
absl::string_view BehindLoneMark(const ThinkingMarks& marks, absl::string_view answer);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_CHAT_THINKING_FILTER_H_
