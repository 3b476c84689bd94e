#include "engine/text/chat/conversation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"
#include "engine/text/template/json_value.h"

namespace lm {
namespace {

// The message of a JSON object; `number` is its place, from 1 on.
absl::StatusOr<ChatMessage> ReadMessage(const TemplateValue& object, size_t number) {
  auto wrong = [number](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "message ", number, " of the prompt must be an object with a role and a content, ", what));
  };
  if (!object.Is(TemplateValue::Kind::kDict)) return wrong(absl::StrCat("got ", object.TypeName()));
  ChatMessage message;
  bool has_role = false, has_content = false, has_calls = false;
  for (const auto& [name, value] : object.entries()) {
    if (name.text().bytes() == "role") {
      if (!value.Is(TemplateValue::Kind::kString)) return wrong("its role is not a string");
      message.role = std::string(value.text().bytes());
      has_role = true;
    } else if (name.text().bytes() == "content") {
      message.content = value;
      has_content = true;
    } else {
      has_calls |= name.text().bytes() == "tool_calls";
      message.others.emplace_back(name, value);
    }
  }
  if (!has_role) return wrong("it has no role");
  if (!has_content && !has_calls) return wrong("it has no content");
  return message;
}

}  // namespace

absl::StatusOr<std::vector<ChatMessage>> ReadConversation(absl::string_view prompt,
                                                          absl::string_view system,
                                                          bool is_messages) {
  std::vector<ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", TemplateValue::Input(system), {}});
  if (!is_messages) {
    messages.push_back({"user", TemplateValue::Input(prompt), {}});
    return messages;
  }
  const absl::StatusOr<TemplateValue> json = ParseJsonValue(prompt);
  if (!json.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the prompt must be a JSON array of messages: ", json.status().message()));
  }
  if (!json->Is(TemplateValue::Kind::kList) || json->list().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the prompt must be a JSON array of messages, got ",
                     json->Is(TemplateValue::Kind::kList) ? "an empty one" : json->TypeName()));
  }
  for (size_t i = 0; i < json->list().size(); ++i) {
    RETURN_IF_ERROR(Checkpoint());
    ASSIGN_OR_RETURN(ChatMessage message, ReadMessage(json->list()[i], i + 1));
    if (message.role == "system" && !system.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "message ", i + 1, " of the prompt is a system message, and there is a system prompt"));
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace lm
