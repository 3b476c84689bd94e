// ThinkingMarks: what a model sets its reasoning off with from its answer.
//
//   <think>\nWell ...\n</think>\n\nYes.
//
// Those of the usual ones are a model's own that its vocabulary has as tokens, or its chat template
// writes or looks for. To others they are words like any, which an answer may begin with.
#ifndef LM_ENGINE_TEXT_CHAT_THINKING_MARKS_H_
#define LM_ENGINE_TEXT_CHAT_THINKING_MARKS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lm {

class Json;
class Tokenizer;

// In the place of the usual marks, as a model's options name them: the begin and the end, or no
// element, where there is no reasoning.
using NamedMarks = std::vector<std::string>;
// InvalidArgument for all but [] and two different texts that are not blank.
absl::StatusOr<NamedMarks> ReadNamedMarks(const Json& value);

// Immutable; thread-safe.
class ThinkingMarks {
 public:
  struct Pair {
    std::string begin, end;
  };

  // All of the usual ones: of a model of which nothing is known.
  static std::shared_ptr<const ThinkingMarks> Usual();
  // A model's own, or those that are named.
  static std::shared_ptr<const ThinkingMarks> Of(const Tokenizer& tokenizer,
                                                 const std::optional<NamedMarks>& named);
  static std::shared_ptr<const ThinkingMarks> Named(const NamedMarks& marks);

  // A mark that another one begins with stands behind it.
  const std::vector<Pair>& pairs() const { return pairs_; }
  // Those of the reasoning that a template's last words have begun, or nullptr.
  const Pair* FindBegun(absl::string_view template_end) const;
  // What ends reasoning with that mark, for an answer to come behind it. `has_lines`: its marks
  // stand on lines of their own; BehindEnd is what then follows the mark.
  static std::string End(absl::string_view mark, bool has_lines);
  static absl::string_view BehindEnd(absl::string_view mark, bool has_lines);
  // Whether a template's last words have ended the reasoning, or begun the answer.
  bool IsOver(absl::string_view template_end) const;
  // What has to follow a template's last words for the reasoning to begin: empty where they have
  // begun it, or ended it at once, and where there are no marks.
  std::string ReasoningBegin(absl::string_view template_end) const;
  // What has to follow such words before an answer does: the end of that reasoning, as of an empty
  // one ("<think>\n" wants "\n</think>\n\n", "<think>" a plain "</think>"), or the head of
  // Harmony's final message. Empty where nothing has to.
  std::string AnswerBegin(absl::string_view template_end) const;
  // Whether a control token of that name is a part of such marks, the usual or these.
  bool IsMark(absl::string_view name) const;

 private:
  std::vector<Pair> pairs_;
};

// Harmony's (gpt-oss): analysis and commentary come first, each in a message of its own. What
// stands between a message's channel and its text says more about it: of which kind it is.
//   <|channel|>final <|constrain|>json<|message|>
inline constexpr absl::string_view kFinalChannel = "<|channel|>final";
inline constexpr absl::string_view kConstrainMark = "<|constrain|>";
inline constexpr absl::string_view kMessageMark = "<|message|>";

}  // namespace lm

#endif  // LM_ENGINE_TEXT_CHAT_THINKING_MARKS_H_
