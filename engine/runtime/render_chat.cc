#include "engine/runtime/render_chat.h"

#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/status_macros.h"
#include "engine/text/json_value.h"

namespace lm {

absl::StatusOr<RenderedChat> RenderChat(const ChatTemplate& chat_template,
                                        absl::Span<const ChatMessage> messages,
                                        const GenerationOptions& options) {
  ChatOptions chat;
  chat.now = absl::ToCivilSecond(absl::Now(), absl::LocalTimeZone());
  if (!options.template_args.empty()) {
    ASSIGN_OR_RETURN(const TemplateValue args, ParseJsonValue(options.template_args));
    for (const auto& [name, value] : args.entries()) {
      chat.template_args.emplace_back(std::string(name.text().bytes()), value);
    }
  }
  return chat_template.Render(messages, chat);
}

}  // namespace lm
