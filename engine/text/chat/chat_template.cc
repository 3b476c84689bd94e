#include "engine/text/chat/chat_template.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"
#include "engine/text/chat/message_shape.h"
#include "engine/text/template/template_parser.h"
#include "engine/text/template/template_renderer.h"
#include "engine/text/token_index.h"

namespace lm {
namespace {

// Templates that files of some converters name instead of holding them.
struct NamedTemplate {
  absl::string_view name;
  absl::string_view source;
};
constexpr NamedTemplate kNamedTemplates[] = {
    {"chatml",
     "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
     "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"},
    {"rwkv-world",
     "{% set names = {'system': 'System', 'user': 'User', 'assistant': 'Assistant'} %}"
     "{% for m in messages if m.role in names %}"
     "{{ names[m.role] }}: {{ m.content | trim }}\n\n"
     "{% endfor %}"
     "{% if add_generation_prompt %}Assistant:{% endif %}"},
};

// Of a file's template, or of the one that it names.
absl::StatusOr<TemplateTree> TreeOf(absl::string_view chat_template) {
  for (const NamedTemplate& named : kNamedTemplates) {
    if (chat_template == named.name) return ParseTemplate(named.source);
  }
  absl::StatusOr<TemplateTree> tree = ParseTemplate(chat_template);
  const bool is_jinja =
      absl::StrContains(chat_template, "{{") || absl::StrContains(chat_template, "{%");
  if (is_jinja || !tree.ok()) return tree;
  return absl::InvalidArgumentError("it is neither Jinja ({{ or {%) nor a name that is known");
}

std::string NameOf(const Vocabulary& vocabulary, int32_t id) {
  const bool known = id >= 0 && static_cast<size_t>(id) < vocabulary.tokens.size();
  return known ? vocabulary.tokens[id] : "";
}

TemplateValue RoleValue(const std::string& role) {
  for (absl::string_view known : {"system", "user", "assistant", "tool", "developer"}) {
    if (role == known) return TemplateValue::Template(role);
  }
  return TemplateValue::Input(role);
}

TemplateValue MessageValue(const ChatMessage& message) {
  static const auto& kRole = *new TemplateValue(TemplateValue::Template("role"));
  static const auto& kContent = *new TemplateValue(TemplateValue::Template("content"));
  TemplateValue::Entries entries;
  entries.reserve(2 + message.others.size());
  entries.emplace_back(kRole, RoleValue(message.role));
  if (!message.content.Is(TemplateValue::Kind::kUndefined)) {
    entries.emplace_back(kContent, message.content);
  }
  entries.insert(entries.end(), message.others.begin(), message.others.end());
  return TemplateValue::Dict(std::move(entries));
}

// What the template's first words say of BOS: taken from their beginning, so that the caller's BOS
// is the only one.
bool TakeBos(const std::string& bos, std::vector<TextPiece>* pieces) {
  if (bos.empty() || pieces->empty() || pieces->front().kind != TextKind::kMarkup) return false;
  std::string& first = pieces->front().text;
  if (!absl::StartsWith(first, bos)) return false;
  first.erase(0, bos.size());
  if (first.empty()) pieces->erase(pieces->begin());
  return true;
}

bool SaysBos(const std::string& bos, const std::vector<TextPiece>& pieces) {
  return !bos.empty() && !pieces.empty() && pieces.front().kind == TextKind::kMarkup &&
         absl::StrContains(pieces.front().text, bos);
}

// ShapeMemory's, of a conversation under options; empty where it is not to be remembered.
std::string NameOf(absl::Span<const ChatMessage> messages, const ChatOptions& options) {
  const std::string name = ShapeMemory::NameOf(messages);
  if (name.empty()) return "";
  TemplateText args;
  TemplateBudget budget(0, 0);
  for (const auto& [key, value] : options.template_args) {
    args.Append(absl::StrCat(key, "="), TextKind::kInput);
    if (!AppendRepr(value, &budget, &args).ok()) return "";
  }
  return absl::StrCat(name, options.tools.Truth() ? "t" : "", options.add_generation_prompt, "/",
                      args.bytes());
}

}  // namespace

std::string RenderedChat::Text() const {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

std::string RenderedChat::TemplateEnd() const {
  const bool ends_so = !pieces.empty() && pieces.back().kind == TextKind::kMarkup;
  return ends_so ? pieces.back().text : "";
}

absl::StatusOr<ChatTemplate> ChatTemplate::Create(const Vocabulary& vocabulary) {
  ChatTemplate chat;
  chat.add_bos_ = vocabulary.add_bos;
  chat.bos_ = NameOf(vocabulary, vocabulary.bos);
  chat.eos_ = NameOf(vocabulary, vocabulary.eos);
  chat.tells_bos_ = vocabulary.states_bos;
  chat.tells_eos_ = vocabulary.states_eos;
  chat.unknown_ = NameOf(vocabulary, vocabulary.unknown);
  chat.padding_ = NameOf(vocabulary, vocabulary.padding);
  if (vocabulary.chat_template.empty()) return chat;
  absl::StatusOr<TemplateTree> tree = TreeOf(vocabulary.chat_template);
  if (!tree.ok()) {
    return absl::UnimplementedError(absl::StrCat("the model's chat template, which begins ",
                                                 QuoteName(vocabulary.chat_template),
                                                 ", is not supported: ", tree.status().message()));
  }
  chat.tree_ = std::make_shared<const TemplateTree>(*std::move(tree));
  chat.shapes_ = std::make_shared<ShapeMemory>();
  return chat;
}

ChatTemplate ChatTemplate::CreateOrRefuse(const Vocabulary& vocabulary) {
  absl::StatusOr<ChatTemplate> created = Create(vocabulary);
  if (created.ok()) return *std::move(created);
  ChatTemplate refusing;
  refusing.refusal_ = created.status();
  return refusing;
}

absl::StatusOr<RenderedChat> ChatTemplate::Render(absl::string_view system,
                                                  absl::string_view prompt,
                                                  const ChatOptions& options) const {
  std::vector<ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", TemplateValue::Input(system), {}});
  messages.push_back({"user", TemplateValue::Input(prompt), {}});
  return Render(messages, options);
}

absl::StatusOr<RenderedChat> ChatTemplate::Render(absl::Span<const ChatMessage> messages,
                                                  const ChatOptions& options) const {
  RETURN_IF_ERROR(refusal_);
  if (tree_ == nullptr) return RenderAsGiven(messages, options);
  const std::string name = NameOf(messages, options);
  std::optional<absl::StatusOr<MessageShape>> shape;
  if (!name.empty()) shape = shapes_->Find(name);
  if (!shape.has_value()) {
    shape = FindShape(messages, [&](absl::Span<const ChatMessage> shaped) {
      absl::StatusOr<RenderedChat> rendered = RenderTree(shaped, options);
      return rendered.ok() ? absl::StatusOr<std::string>(rendered->Text()) : rendered.status();
    });
    if (!name.empty() && !absl::IsCancelled(shape->status())) shapes_->Remember(name, *shape);
  }
  if (!shape->ok()) {
    // Which words a template writes may depend on what they are.
    if (absl::IsCancelled(shape->status())) return shape->status();
    absl::StatusOr<RenderedChat> given = RenderAsGiven(messages, options);
    const bool is_whole = given.ok() && WritesAll(messages, given->Text());
    RETURN_IF_ERROR(Checkpoint());
    if (is_whole || absl::IsCancelled(given.status())) return given;
    return shape->status();
  }
  if ((*shape)->IsAsGiven()) return RenderAsGiven(messages, options);
  const std::optional<std::vector<ChatMessage>> shaped = ShapeMessages(messages, **shape);
  RETURN_IF_ERROR(Checkpoint());
  return RenderAsGiven(shaped.has_value() ? *shaped : messages, options);
}

absl::StatusOr<RenderedChat> ChatTemplate::RenderAsGiven(absl::Span<const ChatMessage> messages,
                                                         const ChatOptions& options) const {
  RETURN_IF_ERROR(refusal_);
  if (tree_ == nullptr) {
    RenderedChat plain;
    plain.adds_bos = add_bos_;
    for (const ChatMessage& message : messages) {
      if (!message.content.Is(TemplateValue::Kind::kString)) {
        return absl::InvalidArgumentError("the model has no chat template: contents must be texts");
      }
      if (!plain.pieces.empty()) plain.pieces.push_back({"\n\n", TextKind::kPlain});
      plain.pieces.push_back({std::string(message.content.text().bytes()), TextKind::kPlain});
    }
    return plain;
  }
  absl::StatusOr<RenderedChat> rendered = RenderTree(messages, options);
  if (rendered.ok() || absl::IsCancelled(rendered.status())) return rendered;
  const bool refuses = absl::IsFailedPrecondition(rendered.status());
  return absl::InvalidArgumentError(absl::StrCat(
      "the model's chat template ", refuses ? "refuses the conversation: " : "cannot be followed: ",
      rendered.status().message()));
}

absl::StatusOr<RenderedChat> ChatTemplate::RenderTree(absl::Span<const ChatMessage> messages,
                                                      const ChatOptions& options) const {
  TemplateValue::List list;
  list.reserve(messages.size());
  for (const ChatMessage& message : messages) {
    RETURN_IF_ERROR(Checkpoint());
    list.push_back(MessageValue(message));
  }
  TemplateInput input;
  input.now = options.now;
  input.variables = {
      {"messages", TemplateValue::Sequence(TemplateValue::Kind::kList, std::move(list))},
      {"tools", options.tools},
      {"documents", TemplateValue::None()},
      {"add_generation_prompt", TemplateValue::Bool(options.add_generation_prompt)},
  };
  const std::pair<const char*, absl::string_view> tokens[] = {
      {"bos_token", tells_bos_ ? absl::string_view(bos_) : ""},
      {"eos_token", tells_eos_ ? absl::string_view(eos_) : ""},
      {"unk_token", unknown_},
      {"pad_token", padding_}};
  for (const auto& [name, token] : tokens) {
    if (!token.empty()) input.variables.emplace_back(name, TemplateValue::Template(token));
  }
  input.variables.insert(input.variables.end(), options.template_args.begin(),
                         options.template_args.end());
  ASSIGN_OR_RETURN(const TemplateText text, RenderTemplate(*tree_, input));
  RenderedChat rendered;
  rendered.pieces = text.Pieces();
  const bool has_bos = SaysBos(bos_, rendered.pieces);
  rendered.says_bos = TakeBos(bos_, &rendered.pieces);
  rendered.adds_bos = rendered.says_bos || (add_bos_ && !has_bos);
  return rendered;
}

}  // namespace lm
