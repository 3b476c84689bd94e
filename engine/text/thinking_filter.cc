#include "engine/text/thinking_filter.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace lm {
namespace {

constexpr absl::string_view kBegin = "<think>";
constexpr absl::string_view kEnd = "</think>";

}  // namespace

bool BeginsThinking(absl::string_view prompt_end) {
  return absl::EndsWith(absl::StripTrailingAsciiWhitespace(prompt_end), kBegin);
}

std::string ThinkingFilter::Append(absl::string_view piece) {
  if (state_ == State::kAnswer) return std::string(piece);
  held_.append(piece.data(), piece.size());
  if (state_ == State::kBeginning) {
    absl::string_view text = absl::StripLeadingAsciiWhitespace(held_);
    if (text.size() < kBegin.size() && absl::StartsWith(kBegin, text)) return "";
    if (!absl::ConsumePrefix(&text, kBegin)) {
      state_ = State::kAnswer;
      return std::exchange(held_, "");
    }
    held_ = std::string(text);
    state_ = State::kInside;
  }
  if (state_ == State::kInside) {
    const size_t end = held_.find(kEnd.data(), 0, kEnd.size());
    if (end == std::string::npos) {
      // What may become the end is kept.
      if (held_.size() >= kEnd.size()) held_.erase(0, held_.size() - (kEnd.size() - 1));
      return "";
    }
    held_.erase(0, end + kEnd.size());
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
