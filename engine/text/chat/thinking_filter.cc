#include "engine/text/chat/thinking_filter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace lm {
namespace {

constexpr size_t kMostHeaderBytes = 256;  // behind the channel

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
    if (absl::StartsWith(rest, kMessageMark)) return {true, at + kMessageMark.size()};
    if (!absl::StartsWith(rest, kConstrainMark)) {
      const bool may_come =
          absl::StartsWith(kMessageMark, rest) || absl::StartsWith(kConstrainMark, rest);
      if (!may_come) return {false, absl::string_view::npos};
      break;
    }
    at += kConstrainMark.size();
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

absl::string_view BehindLoneMark(const ThinkingMarks& known, absl::string_view answer) {
  for (const ThinkingMarks::Pair& marks : known.pairs()) {
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

ThinkingFilter::ThinkingFilter(std::shared_ptr<const ThinkingMarks> marks,
                               absl::string_view template_end)
    : marks_(std::move(marks)) {
  const ThinkingMarks::Pair* const begun = marks_->FindBegun(template_end);
  if (begun == nullptr) return;
  state_ = State::kInside;
  end_ = begun->end;
  if (end_ == kFinalChannel) held_ = begun->begin;
}

// Looks for a mark at the head of the text; false where it is not known yet whether one is there.
bool ThinkingFilter::Begin() {
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(held_);
  bool may_come = false;
  for (const ThinkingMarks::Pair& marks : marks_->pairs()) {
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
