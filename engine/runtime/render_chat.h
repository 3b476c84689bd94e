// A conversation as a model's template writes it, under the options of a request.
#ifndef LM_ENGINE_RUNTIME_RENDER_CHAT_H_
#define LM_ENGINE_RUNTIME_RENDER_CHAT_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/runtime/generation_options.h"
#include "engine/text/chat/chat_template.h"
#include "engine/text/chat/thinking_marks.h"

namespace lm {

// With options.template_args, on today's date. ChatTemplate::Render's errors.
//
// A constraint is for the answer. So where there is one, and the template ends by beginning the
// model's reasoning, that is ended at once: by the template, asked with enable_thinking false where
// the options do not speak of that and it can, else by the mark that ends it. Harmony's answer is
// begun by its channel. So with thinking_tokens 0, whatever the answer is. With more the template
// is asked with enable_thinking true, and before a constrained answer the reasoning is begun, where
// the template has not.
absl::StatusOr<RenderedChat> RenderChat(const ChatTemplate& chat_template,
                                        absl::Span<const ChatMessage> messages,
                                        const GenerationOptions& options,
                                        const ThinkingMarks& marks);

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_RENDER_CHAT_H_
