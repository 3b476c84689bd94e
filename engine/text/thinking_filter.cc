#include "engine/text/thinking_filter.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace lm {
namespace {

struct Marks {
  absl::string_view begin, end;
};

// A mark that another one begins with stands behind it.
constexpr Marks kMarks[] = {
    {"<think>", "</think>"},                         // DeepSeek R1, Qwen3, SmolLM3, GLM
    {"[THINK]", "[/THINK]"},                         // Magistral, Ministral
    {"<seed:think>", "</seed:think>"},               // Seed-OSS
    {"<|START_THINKING|>", "<|END_THINKING|>"},      // Command
    {"<|inner_prefix|>", "<|inner_suffix|>"},        // Apertus
    {"<|channel>thought", "<channel|>"},             // Gemma 4
    {"<|channel|>final<|message|>", ""},             // Harmony (gpt-oss): there is none
    {"<|channel|>", "<|channel|>final<|message|>"},  // ... analysis and commentary come first
};

constexpr absl::string_view kControls[] = {
    "<think>",
    "</think>",
    "[THINK]",
    "[/THINK]",
    "<seed:think>",
    "</seed:think>",
    "<|START_THINKING|>",
    "<|END_THINKING|>",
    "<|inner_prefix|>",
    "<|inner_suffix|>",
    "<|channel>",
    "<channel|>",
    "<|channel|>",
    "<|message|>",
};

}  // namespace

bool IsThinkingMark(absl::string_view name) {
  return std::find(std::begin(kControls), std::end(kControls), name) != std::end(kControls);
}

ThinkingFilter::ThinkingFilter(absl::string_view prompt_end) {
  const absl::string_view end = absl::StripTrailingAsciiWhitespace(prompt_end);
  for (const Marks& marks : kMarks) {
    if (marks.end.empty() || !absl::EndsWith(end, marks.begin)) continue;
    state_ = State::kInside;
    end_ = marks.end;
    return;
  }
}

// Looks for a mark at the head of the text; false where it is not known yet whether one is there.
bool ThinkingFilter::Begin() {
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(held_);
  bool may_come = false;
  for (const Marks& marks : kMarks) {
    if (absl::StartsWith(text, marks.begin) && !may_come) {
      held_ = std::string(text.substr(marks.begin.size()));
      state_ = marks.end.empty() ? State::kBehind : State::kInside;
      end_ = marks.end;
      return true;
    }
    may_come |= absl::StartsWith(marks.begin, text);
  }
  if (!may_come) state_ = State::kAnswer;
  return !may_come;
}

std::string ThinkingFilter::Append(absl::string_view piece, bool is_mark) {
  if (state_ == State::kAnswer) return is_mark ? "" : std::string(piece);
  held_.append(piece.data(), piece.size());
  if (state_ == State::kBeginning) {
    if (held_.empty() || !Begin()) return "";
    if (state_ == State::kAnswer) return std::exchange(held_, "");
  }
  if (state_ == State::kInside) {
    const size_t end = held_.find(end_.data(), 0, end_.size());
    if (end == std::string::npos) {
      // What may become the end is kept.
      if (held_.size() >= end_.size()) held_.erase(0, held_.size() - (end_.size() - 1));
      return "";
    }
    held_.erase(0, end + end_.size());
    state_ = State::kBehind;
  }
  held_ = std::string(absl::StripLeadingAsciiWhitespace(held_));
  if (held_.empty()) return "";
  state_ = State::kAnswer;
  return std::exchange(held_, "");
}

std::string ThinkingFilter::Finish() {
  const bool answer = state_ == State::kBeginning || state_ == State::kAnswer;
  std::string rest = std::exchange(held_, "");
  return answer ? rest : "";
}

}  // namespace lm
