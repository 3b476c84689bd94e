// A conversation as a model's template writes it, under the options of a request.
#ifndef LM_ENGINE_RUNTIME_RENDER_CHAT_H_
#define LM_ENGINE_RUNTIME_RENDER_CHAT_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/runtime/generation_options.h"
#include "engine/text/chat_template.h"

namespace lm {

// With options.template_args, on today's date. ChatTemplate::Render's errors.
absl::StatusOr<RenderedChat> RenderChat(const ChatTemplate& chat_template,
                                        absl::Span<const ChatMessage> messages,
                                        const GenerationOptions& options);

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_RENDER_CHAT_H_
