#include "engine/runtime/render_chat.h"

#include <algorithm>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/status_macros.h"
#include "engine/text/json_value.h"

namespace lm {
namespace {

constexpr absl::string_view kSwitch = "enable_thinking";

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
  ASSIGN_OR_RETURN(RenderedChat rendered, chat_template.Render(messages, chat));
  const std::string end = marks.AnswerBegin(rendered.TemplateEnd());
  if (options.constraint.kind == AnswerConstraint::Kind::kNone || end.empty()) return rendered;
  const bool is_told = std::any_of(chat.template_args.begin(), chat.template_args.end(),
                                   [](const auto& argument) { return argument.first == kSwitch; });
  if (!is_told) {
    chat.template_args.emplace_back(kSwitch, TemplateValue::Bool(false));
    absl::StatusOr<RenderedChat> ended = chat_template.Render(messages, chat);
    if (absl::IsCancelled(ended.status())) return ended;
    if (ended.ok() && marks.AnswerBegin(ended->TemplateEnd()).empty()) return ended;
  }
  rendered.pieces.back().text += end;
  return rendered;
}

}  // namespace lm
