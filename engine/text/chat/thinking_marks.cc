#include "engine/text/chat/thinking_marks.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/text/tokenizer.h"

namespace lm {
namespace {

struct UsualMarks {
  absl::string_view begin, end;
  absl::string_view first, last;  // the tokens that a model with such marks has
};

constexpr absl::string_view kGemmasEnd = "<channel|>";  // the answer stands on its line

constexpr UsualMarks kUsual[] = {
    // DeepSeek R1, Qwen3, SmolLM3, GLM
    {"<think>", "</think>", "<think>", "</think>"},
    // Magistral, Ministral
    {"[THINK]", "[/THINK]", "[THINK]", "[/THINK]"},
    // Seed-OSS
    {"<seed:think>", "</seed:think>", "<seed:think>", "</seed:think>"},
    // Command
    {"<|START_THINKING|>", "<|END_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>"},
    // Apertus
    {"<|inner_prefix|>", "<|inner_suffix|>", "<|inner_prefix|>", "<|inner_suffix|>"},
    // Gemma 4
    {"<|channel>thought", kGemmasEnd, "<|channel>", kGemmasEnd},
    {kFinalChannel, kFinalChannel, "<|channel|>", kMessageMark},
    {"<|channel|>", kFinalChannel, "<|channel|>", kMessageMark},
    {"<|start|>assistant<|channel|>", kFinalChannel, "<|channel|>", kMessageMark},
};

constexpr absl::string_view kAssistantMessage = "<|start|>assistant";  // Harmony's

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

}  // namespace

absl::StatusOr<NamedMarks> ReadNamedMarks(const Json& value) {
  NamedMarks marks;
  bool fits = value.is_array() && (value.size() == 0 || value.size() == 2);
  if (fits) {
    for (const Json& mark : value.array()) {
      if (mark.is_string()) marks.emplace_back(absl::StripAsciiWhitespace(mark.string()));
      fits &= mark.is_string() && !marks.back().empty();
    }
  }
  fits &= marks.empty() || (marks.size() == 2 && marks[0] != marks[1]);
  if (fits) return marks;
  return absl::InvalidArgumentError(absl::StrCat(
      R"(thinking_marks must be what begins and what ends the reasoning, such as ["<think>",)"
      R"("</think>"], or [] for none, got )",
      value.Dump()));
}

std::shared_ptr<const ThinkingMarks> ThinkingMarks::Usual() {
  static const auto& usual = *[] {
    auto marks = std::make_shared<ThinkingMarks>();
    for (const UsualMarks& one : kUsual) {
      marks->pairs_.push_back({std::string(one.begin), std::string(one.end)});
    }
    return new std::shared_ptr<const ThinkingMarks>(std::move(marks));
  }();
  return usual;
}

std::shared_ptr<const ThinkingMarks> ThinkingMarks::Of(const Tokenizer& tokenizer,
                                                       const std::optional<NamedMarks>& named) {
  if (named.has_value()) return Named(*named);
  const absl::string_view chat_template = tokenizer.vocabulary().chat_template;
  auto marks = std::make_shared<ThinkingMarks>();
  for (const UsualMarks& one : kUsual) {
    const bool has_tokens =
        tokenizer.FindToken(one.first) >= 0 && tokenizer.FindToken(one.last) >= 0;
    if (has_tokens || absl::StrContains(chat_template, one.first) ||
        absl::StrContains(chat_template, one.end)) {
      marks->pairs_.push_back({std::string(one.begin), std::string(one.end)});
    }
  }
  return marks;
}

std::shared_ptr<const ThinkingMarks> ThinkingMarks::Named(const NamedMarks& named) {
  auto marks = std::make_shared<ThinkingMarks>();
  if (named.size() == 2) marks->pairs_.push_back({named[0], named[1]});
  return marks;
}

const ThinkingMarks::Pair* ThinkingMarks::FindBegun(absl::string_view template_end) const {
  const absl::string_view end = absl::StripTrailingAsciiWhitespace(template_end);
  const auto found = std::find_if(pairs_.begin(), pairs_.end(), [end](const Pair& pair) {
    return absl::EndsWith(end, pair.begin);
  });
  return found != pairs_.end() ? &*found : nullptr;
}

std::string ThinkingMarks::AnswerBegin(absl::string_view template_end) const {
  const Pair* const begun = FindBegun(template_end);
  if (begun == nullptr) {
    const bool has_channels = std::any_of(
        pairs_.begin(), pairs_.end(), [](const Pair& pair) { return pair.end == kFinalChannel; });
    const bool begins_message = has_channels && absl::EndsWith(template_end, kAssistantMessage);
    return begins_message ? absl::StrCat(kFinalChannel, kMessageMark) : "";
  }
  if (begun->end == kFinalChannel) {
    return absl::StrCat(begun->begin == kFinalChannel ? "" : "final", kMessageMark);
  }
  return End(begun->end, /*has_lines=*/absl::EndsWith(template_end, "\n"));
}

std::string ThinkingMarks::End(absl::string_view mark, bool has_lines) {
  if (mark == kFinalChannel) {
    return absl::StrCat("<|end|>", kAssistantMessage, kFinalChannel, kMessageMark);
  }
  return absl::StrCat(has_lines ? "\n" : "", mark, BehindEnd(mark, has_lines));
}

absl::string_view ThinkingMarks::BehindEnd(absl::string_view mark, bool has_lines) {
  return has_lines && mark != kFinalChannel && mark != kGemmasEnd ? "\n\n" : "";
}

bool ThinkingMarks::IsOver(absl::string_view template_end) const {
  const absl::string_view end = absl::StripTrailingAsciiWhitespace(template_end);
  return std::any_of(pairs_.begin(), pairs_.end(), [end](const Pair& pair) {
    return absl::EndsWith(end, pair.end) || absl::EndsWith(end, kMessageMark);
  });
}

std::string ThinkingMarks::ReasoningBegin(absl::string_view template_end) const {
  if (pairs_.empty() || FindBegun(template_end) != nullptr || IsOver(template_end)) return "";
  // Of which kind a message is the model says itself.
  return pairs_[0].end == kFinalChannel ? "<|channel|>" : pairs_[0].begin;
}

bool ThinkingMarks::IsMark(absl::string_view name) const {
  return std::find(std::begin(kControls), std::end(kControls), name) != std::end(kControls) ||
         std::any_of(pairs_.begin(), pairs_.end(),
                     [name](const Pair& pair) { return name == pair.begin || name == pair.end; });
}

}  // namespace lm
