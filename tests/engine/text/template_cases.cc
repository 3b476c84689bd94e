#include "tests/engine/text/template_cases.h"

#include <vector>

namespace lm {
namespace {

std::string TextOf(const TemplateValue& value) { return std::string(value.text().bytes()); }

ChatMessage MessageOf(const TemplateValue& given) {
  ChatMessage message;
  for (const auto& [key, value] : given.entries()) {
    const std::string name = TextOf(key);
    if (name == "role") {
      message.role = TextOf(value);
    } else if (name == "content") {
      message.content = value;
    } else {
      message.others.emplace_back(key, value);
    }
  }
  return message;
}

}  // namespace

const TemplateValue* MemberOf(const TemplateValue& dict, absl::string_view key) {
  for (const auto& [name, value] : dict.entries()) {
    if (name.text().bytes() == key) return &value;
  }
  return nullptr;
}

absl::StatusOr<ChatTemplate> TemplateOf(const TemplateValue& job, absl::string_view source) {
  Vocabulary vocabulary;
  vocabulary.chat_template = std::string(source);
  vocabulary.tokens = {TextOf(*MemberOf(job, "bos")), TextOf(*MemberOf(job, "eos"))};
  vocabulary.bos = 0;
  vocabulary.eos = 1;
  return ChatTemplate::Create(vocabulary);
}

absl::StatusOr<std::string> RenderCase(const ChatTemplate& chat, const TemplateValue& job,
                                       const TemplateValue& one) {
  std::vector<ChatMessage> messages;
  for (const TemplateValue& given : MemberOf(one, "messages")->list()) {
    messages.push_back(MessageOf(given));
  }
  ChatOptions options;
  const TemplateValue::List& now = MemberOf(job, "now")->list();
  options.now = absl::CivilSecond(now[0].integer(), now[1].integer(), now[2].integer(),
                                  now[3].integer(), now[4].integer(), now[5].integer());
  if (const TemplateValue* tools = MemberOf(one, "tools"); tools != nullptr) options.tools = *tools;
  if (const TemplateValue* add = MemberOf(one, "add_generation_prompt"); add != nullptr) {
    options.add_generation_prompt = add->Truth();
  }
  if (const TemplateValue* args = MemberOf(one, "args"); args != nullptr) {
    for (const auto& [key, value] : args->entries()) {
      options.template_args.emplace_back(TextOf(key), value);
    }
  }
  absl::StatusOr<RenderedChat> rendered = chat.RenderAsGiven(messages, options);
  if (!rendered.ok()) return rendered.status();
  return (rendered->adds_bos ? TextOf(*MemberOf(job, "bos")) : "") + rendered->Text();
}

}  // namespace lm
