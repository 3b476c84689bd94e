// What a prompt says, as the messages that a chat template renders.
#ifndef LM_ENGINE_TEXT_CHAT_CONVERSATION_H_
#define LM_ENGINE_TEXT_CHAT_CONVERSATION_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/chat/chat_template.h"

namespace lm {

// The system prompt, left out where empty, and behind it the prompt: a user's message, or where
// `is_messages` a JSON array of messages, each an object with a role and a content or, in its
// place, tool_calls (InvalidArgument where it is not, naming the message, or where one of them is a
// second system prompt).
absl::StatusOr<std::vector<ChatMessage>> ReadConversation(absl::string_view prompt,
                                                          absl::string_view system,
                                                          bool is_messages);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_CHAT_CONVERSATION_H_
