#include "engine/runtime/render_chat.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/status_macros.h"
#include "engine/text/template/json_value.h"

namespace lm {
namespace {

// What templates ask for: most the first, DeepSeek's and Granite's the second.
constexpr absl::string_view kSwitches[] = {"enable_thinking", "thinking"};

void BeginReasoning(const ThinkingMarks& marks, RenderedChat* chat) {
  const std::string begin = marks.ReasoningBegin(chat->TemplateEnd());
  if (begin.empty()) return;
  if (chat->pieces.empty() || chat->pieces.back().kind != TextKind::kMarkup) {
    chat->pieces.push_back({"", TextKind::kMarkup});
  }
  chat->pieces.back().text += begin;
}

}  // namespace

absl::StatusOr<RenderedChat> RenderChat(const ChatTemplate& chat_template,
                                        absl::Span<const ChatMessage> messages,
                                        const GenerationOptions& options,
                                        const ThinkingMarks& marks) {
  ChatOptions chat;
  chat.now = absl::ToCivilSecond(absl::Now(), absl::LocalTimeZone());
  if (!options.template_args.empty()) {
    ASSIGN_OR_RETURN(const TemplateValue args, ParseJsonValue(options.template_args));
    for (const auto& [name, value] : args.entries()) {
      chat.template_args.emplace_back(std::string(name.text().bytes()), value);
    }
  }
  const bool constrained = IsConstrained(options);
  const bool is_told = std::any_of(
      chat.template_args.begin(), chat.template_args.end(), [](const auto& argument) {
        return std::find(std::begin(kSwitches), std::end(kSwitches), argument.first) !=
               std::end(kSwitches);
      });
  // As the template writes it that is told so; an error where it does not take that.
  auto switched = [&](bool thinking) {
    ChatOptions told = chat;
    for (const absl::string_view name : kSwitches) {
      told.template_args.emplace_back(name, TemplateValue::Bool(thinking));
    }
    return chat_template.Render(messages, told);
  };
  if (Reasons(options)) {
    absl::StatusOr<RenderedChat> rendered = absl::UnknownError("");
    if (!is_told) rendered = switched(true);
    if (!rendered.ok() && !absl::IsCancelled(rendered.status())) {
      rendered = chat_template.Render(messages, chat);
    }
    if (rendered.ok() && constrained) BeginReasoning(marks, &*rendered);
    return rendered;
  }
  ASSIGN_OR_RETURN(RenderedChat rendered, chat_template.Render(messages, chat));
  const std::string end = marks.AnswerBegin(rendered.TemplateEnd());
  const bool answers_at_once = options.thinking_tokens.has_value();
  if (!answers_at_once && (!constrained || end.empty())) return rendered;
  if (!is_told) {
    absl::StatusOr<RenderedChat> ended = switched(false);
    if (absl::IsCancelled(ended.status())) return ended;
    if (ended.ok() && marks.AnswerBegin(ended->TemplateEnd()).empty()) return ended;
  }
  if (!end.empty()) rendered.pieces.back().text += end;
  return rendered;
}

}  // namespace lm
