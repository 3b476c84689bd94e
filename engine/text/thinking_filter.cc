#include "engine/text/thinking_filter.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace lm {
namespace {

// Harmony's (gpt-oss): analysis and commentary come first, each in a message of its own. What
// stands between a message's channel and its text says more about it: of which kind it is.
//   <|channel|>final <|constrain|>json<|message|>
constexpr absl::string_view kFinalChannel = "<|channel|>final";
constexpr absl::string_view kConstrain = "<|constrain|>";
constexpr absl::string_view kMessage = "<|message|>";
constexpr size_t kMostHeaderBytes = 256;  // behind the channel

struct Marks {
  absl::string_view begin, end;
};

// A mark that another one begins with stands behind it.
constexpr Marks kMarks[] = {
    {"<think>", "</think>"},                     // DeepSeek R1, Qwen3, SmolLM3, GLM
    {"[THINK]", "[/THINK]"},                     // Magistral, Ministral
    {"<seed:think>", "</seed:think>"},           // Seed-OSS
    {"<|START_THINKING|>", "<|END_THINKING|>"},  // Command
    {"<|inner_prefix|>", "<|inner_suffix|>"},    // Apertus
    {"<|channel>thought", "<channel|>"},         // Gemma 4
    {kFinalChannel, kFinalChannel},
    {"<|channel|>", kFinalChannel},
    {"<|start|>assistant<|channel|>", kFinalChannel},
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
    "<|constrain|>",
    "<|start|>",
    "<|end|>",
};

// Where a mark ends that was looked for, or, where it has not come, from where on the text may
// become one.
struct MarkPlace {
  bool whole = false;
  size_t at = 0;
};

MarkPlace FindEnd(absl::string_view text, absl::string_view end) {
  const size_t at = text.find(end);
  if (at != absl::string_view::npos) return {true, at + end.size()};
  return {false, text.size() - std::min(text.size(), end.size() - 1)};
}

// The text behind a channel's name: whether its header ends, and where; npos: it is none.
MarkPlace FindMessage(absl::string_view text) {
  const absl::string_view header = text.substr(0, kMostHeaderBytes);
  for (size_t at = header.find("<|"); at != absl::string_view::npos; at = header.find("<|", at)) {
    const absl::string_view rest = header.substr(at);
    if (absl::StartsWith(rest, kMessage)) return {true, at + kMessage.size()};
    if (!absl::StartsWith(rest, kConstrain)) {
      const bool may_come = absl::StartsWith(kMessage, rest) || absl::StartsWith(kConstrain, rest);
      if (!may_come) return {false, absl::string_view::npos};
      break;
    }
    at += kConstrain.size();
  }
  return {false, header.size() < kMostHeaderBytes ? 0 : absl::string_view::npos};
}

MarkPlace FindFinalMessage(absl::string_view text) {
  size_t from = 0;
  while (true) {
    MarkPlace found = FindEnd(text.substr(from), kFinalChannel);
    found.at += from;
    if (!found.whole) return found;
    const MarkPlace message = FindMessage(text.substr(found.at));
    if (message.whole) return {true, found.at + message.at};
    if (message.at == 0) return {false, found.at - kFinalChannel.size()};
    from = found.at;
  }
}

}  // namespace

bool IsThinkingMark(absl::string_view name) {
  return std::find(std::begin(kControls), std::end(kControls), name) != std::end(kControls);
}

absl::string_view BehindLoneMark(absl::string_view answer) {
  for (const Marks& marks : kMarks) {
    if (marks.end == kFinalChannel) continue;
    for (size_t at = answer.find(marks.end); at != absl::string_view::npos;
         at = answer.find(marks.end, at + 1)) {
      if (absl::StrContains(answer.substr(0, at), marks.begin)) break;
      const absl::string_view behind = answer.substr(at + marks.end.size());
      const bool quoted = at > 0 && !behind.empty() && answer[at - 1] == behind[0] &&
                          absl::ascii_ispunct(static_cast<unsigned char>(behind[0]));
      if (!quoted) return absl::StripLeadingAsciiWhitespace(behind);
    }
  }
  return answer;
}

ThinkingFilter::ThinkingFilter(absl::string_view template_end) {
  const absl::string_view end = absl::StripTrailingAsciiWhitespace(template_end);
  for (const Marks& marks : kMarks) {
    if (!absl::EndsWith(end, marks.begin)) continue;
    state_ = State::kInside;
    end_ = marks.end;
    if (end_ == kFinalChannel) held_ = std::string(marks.begin);
    return;
  }
}

// Looks for a mark at the head of the text; false where it is not known yet whether one is there.
bool ThinkingFilter::Begin() {
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(held_);
  bool may_come = false;
  for (const Marks& marks : kMarks) {
    if (absl::StartsWith(text, marks.begin) && !may_come) {
      state_ = State::kInside;
      end_ = marks.end;
      if (end_ != kFinalChannel) held_ = std::string(text.substr(marks.begin.size()));
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
    if (!is_mark) plain_.append(piece.data(), piece.size());
    if (held_.empty() || !Begin()) return "";
    if (state_ == State::kAnswer) {
      held_.clear();
      return std::exchange(plain_, "");
    }
  }
  if (state_ == State::kInside) {
    const MarkPlace end = end_ == kFinalChannel ? FindFinalMessage(held_) : FindEnd(held_, end_);
    held_.erase(0, end.at);  // what may become the end is kept
    if (!end.whole) return "";
    state_ = State::kBehind;
  }
  held_ = std::string(absl::StripLeadingAsciiWhitespace(held_));
  if (held_.empty()) return "";
  state_ = State::kAnswer;
  return std::exchange(held_, "");
}

std::string ThinkingFilter::Finish() {
  held_.clear();
  return state_ == State::kBeginning ? std::exchange(plain_, "") : "";
}

}  // namespace lm
