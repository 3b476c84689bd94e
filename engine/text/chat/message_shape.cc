#include "engine/text/chat/message_shape.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/text/chat/thinking_marks.h"

namespace lm {
namespace {

using Kind = TemplateValue::Kind;
using Messages = std::vector<ChatMessage>;

constexpr absl::string_view kSystem = "system";
constexpr absl::string_view kDeveloper = "developer";
constexpr absl::string_view kUser = "user";
constexpr absl::string_view kAssistant = "assistant";
constexpr absl::string_view kBetween = "\n\n";

constexpr size_t kMostNameBytes = 1024;
constexpr size_t kMostShapes = 256;

bool IsBlank(absl::string_view text) { return absl::StripAsciiWhitespace(text).empty(); }

// The marks of reasoning in a text that is no model's. Templates that take reasoning out of answers
// may cut other texts at them, too.
std::vector<absl::string_view> MarksIn(const ChatMessage& message, absl::string_view text) {
  std::vector<absl::string_view> marks;
  if (message.role == kAssistant) return marks;
  for (const ThinkingMarks::Pair& pair : ThinkingMarks::Usual()->pairs()) {
    for (const std::string* mark : {&pair.begin, &pair.end}) {
      if (absl::StrContains(text, *mark)) marks.push_back(*mark);
    }
  }
  return marks;
}

bool HasMember(const ChatMessage& message, absl::string_view member) {
  return std::any_of(message.others.begin(), message.others.end(),
                     [member](const auto& other) { return other.first.text().bytes() == member; });
}

// The text of a part of a content, or nullptr: {"type":"text","text":"Hi"}, "Hi".
const TemplateValue* TextOf(const TemplateValue& part) {
  if (part.Is(Kind::kString)) return &part;
  if (!part.Is(Kind::kDict)) return nullptr;
  for (const auto& [name, value] : part.entries()) {
    if (name.text().bytes() == "text" && value.Is(Kind::kString)) return &value;
  }
  return nullptr;
}

TemplateValue PartOf(const TemplateValue& text) {
  return TemplateValue::Dict({{TemplateValue::Input("type"), TemplateValue::Input("text")},
                              {TemplateValue::Input("text"), text}});
}

TemplateValue Joined(const TemplateValue& first, absl::string_view between,
                     const TemplateValue& second) {
  TemplateText text = first.text();
  text.Append(between, TextKind::kInput);
  text.Append(second.text());
  return TemplateValue::String(std::move(text));
}

// A content of nothing but texts as one, or nullopt.
std::optional<TemplateValue> OneText(const TemplateValue& content) {
  if (content.Is(Kind::kString)) return content;
  if (!content.Is(Kind::kList) || content.list().empty()) return std::nullopt;
  std::optional<TemplateValue> whole;
  for (const TemplateValue& part : content.list()) {
    const TemplateValue* const text = TextOf(part);
    if (text == nullptr) return std::nullopt;
    whole = whole.has_value() ? Joined(*whole, "\n", *text) : *text;
  }
  return whole;
}

// Puts a system's content in front of another's; false where one of them is no text.
bool PutInFront(const TemplateValue& system, TemplateValue* content) {
  const std::optional<TemplateValue> first = OneText(system);
  if (!first.has_value()) return false;
  if (content->Is(Kind::kList)) {
    const TemplateValue apart = Joined(*first, kBetween, TemplateValue::Input(""));
    TemplateValue::List parts = {PartOf(apart)};
    parts.insert(parts.end(), content->list().begin(), content->list().end());
    *content = TemplateValue::Sequence(Kind::kList, std::move(parts));
    return true;
  }
  if (!content->Is(Kind::kString)) return false;
  *content = Joined(*first, kBetween, *content);
  return true;
}

bool MoveSystems(MessageShape::Systems systems, Messages* messages) {
  Messages moved;
  std::optional<TemplateValue> waiting;
  for (ChatMessage& message : *messages) {
    const bool is_system = message.role == kSystem;
    const bool leads = is_system && systems == MessageShape::Systems::kOneInFront &&
                       !waiting.has_value() && moved.size() <= 1 &&
                       (moved.empty() || moved[0].role == kSystem);
    if (leads && !moved.empty()) {
      TemplateValue content = std::exchange(moved[0].content, TemplateValue());
      if (!PutInFront(content, &message.content)) return false;
      moved[0].content = std::move(message.content);
    } else if (is_system && !leads) {
      if (waiting.has_value() && !PutInFront(*waiting, &message.content)) return false;
      waiting = std::move(message.content);
    } else {
      if (waiting.has_value() && message.role == kUser) {
        if (!PutInFront(*waiting, &message.content)) return false;
        waiting.reset();
      }
      moved.push_back(std::move(message));
    }
  }
  *messages = std::move(moved);
  return !waiting.has_value();
}

void SetContents(MessageShape::Contents contents, Messages* messages) {
  for (ChatMessage& message : *messages) {
    TemplateValue& content = message.content;
    if (contents == MessageShape::Contents::kTexts) {
      if (std::optional<TemplateValue> text = OneText(content)) content = *std::move(text);
    } else if (content.Is(Kind::kString) &&
               (contents == MessageShape::Contents::kParts || message.role != kSystem)) {
      content = TemplateValue::Sequence(Kind::kList, {PartOf(content)});
    }
  }
}

// A conversation with a word of its own for each text that is no white space; with several, and the
// marks of reasoning between them, where it has those.
class Probe {
 public:
  explicit Probe(absl::Span<const ChatMessage> messages)
      : messages_(messages.begin(), messages.end()) {
    for (ChatMessage& message : messages_) {
      const size_t number = &message - messages_.data();
      const bool beside_calls = message.role == kAssistant && HasMember(message, "tool_calls");
      if (!beside_calls) message.content = WithWords(message.content, number);
    }
  }

  const Messages& messages() const { return messages_; }

  struct Lost {
    size_t message = 0;
    bool partly = false;  // another word of it is there
  };
  // The first message of which a word is not in the text, or, where contents are lists, only as
  // Python or JSON write a list of parts.
  std::optional<Lost> FindLost(absl::string_view text, bool has_lists) const {
    std::vector<bool> has(messages_.size());
    std::optional<size_t> lost;
    size_t last = 0;  // most stand in their order
    for (size_t i = 0; i < owners_.size(); ++i) {
      const std::string word = WordOf(i);
      size_t at = FindWord(text, word, last, has_lists);
      if (at == text.npos && last > 0) at = FindWord(text, word, 0, has_lists);
      if (at != text.npos) {
        has[owners_[i]] = true;
        last = at;
      } else if (!lost.has_value()) {
        lost = owners_[i];
      }
    }
    if (!lost.has_value()) return std::nullopt;
    return Lost{*lost, has[*lost]};
  }

 private:
  static std::string WordOf(size_t number) { return absl::StrCat("qw", number, "wq"); }

  TemplateValue WordFor(const TemplateValue& content, size_t message) {
    owners_.push_back(message);
    std::string words = WordOf(owners_.size() - 1);
    for (absl::string_view mark : MarksIn(messages_[message], content.text().bytes())) {
      owners_.push_back(message);
      absl::StrAppend(&words, " ", mark, " ", WordOf(owners_.size() - 1));
    }
    return TemplateValue::Input(words);
  }

  TemplateValue WithWords(const TemplateValue& content, size_t message) {
    if (content.Is(Kind::kString)) {
      return IsBlank(content.text().bytes()) ? content : WordFor(content, message);
    }
    if (!content.Is(Kind::kList)) return content;
    TemplateValue::List parts;
    for (const TemplateValue& part : content.list()) {
      const TemplateValue* const text = TextOf(part);
      if (text == nullptr || IsBlank(text->text().bytes())) {
        parts.push_back(part);
      } else if (part.Is(Kind::kString)) {
        parts.push_back(WordFor(*text, message));
      } else {
        TemplateValue::Entries entries = part.entries();
        for (auto& entry : entries) {
          if (entry.first.text().bytes() == "text") entry.second = WordFor(*text, message);
        }
        parts.push_back(TemplateValue::Dict(std::move(entries)));
      }
    }
    return TemplateValue::Sequence(Kind::kList, std::move(parts));
  }

  static size_t FindWord(absl::string_view text, absl::string_view word, size_t from,
                         bool has_lists) {
    size_t at = text.find(word, from);
    while (has_lists && at != text.npos && IsWrittenPart(text.substr(0, at))) {
      at = text.find(word, at + 1);
    }
    return at;
  }

  // Whether what stands before a word is the head of its part: 'text': '
  static bool IsWrittenPart(absl::string_view before) {
    for (absl::string_view quote : {"'", "\""}) {
      absl::string_view head = before;
      if (!absl::ConsumeSuffix(&head, quote)) continue;
      absl::ConsumeSuffix(&head, " ");
      if (absl::ConsumeSuffix(&head, ":") && absl::ConsumeSuffix(&head, quote) &&
          absl::EndsWith(head, "text")) {
        return true;
      }
    }
    return false;
  }

  Messages messages_;
  std::vector<size_t> owners_;  // by word: the message's place
};

// Those that may make a difference, the nearest to what is given first.
std::vector<MessageShape> ShapesFor(const Messages& messages) {
  bool has_text = false, has_list = false, has_developer = false;
  size_t systems = 0;
  for (const ChatMessage& message : messages) {
    has_text |= message.content.Is(Kind::kString);
    has_list |= message.content.Is(Kind::kList);
    has_developer |= message.role == kDeveloper;
    systems += message.role == kSystem;
  }
  using Contents = MessageShape::Contents;
  using Systems = MessageShape::Systems;
  std::vector<Contents> contents = {Contents::kAsGiven};
  if (has_list) contents.push_back(Contents::kTexts);
  if (has_text) contents.push_back(Contents::kParts);
  if (has_text && (systems > 0 || has_developer)) contents.push_back(Contents::kUsersParts);
  std::vector<MessageShape> shapes;
  for (Systems system : {Systems::kAsGiven, Systems::kOneInFront, Systems::kWithUsers}) {
    for (bool developer_is_system : {false, true}) {
      if (developer_is_system && !has_developer) continue;
      const bool has_systems = systems > 0 || developer_is_system;
      if (system != Systems::kAsGiven && !has_systems) continue;
      for (Contents content : contents) {
        shapes.push_back({content, system, developer_is_system});
      }
    }
  }
  return shapes;
}

absl::Status LostError(const ChatMessage& message, size_t number, size_t count, bool partly) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the model's chat template leaves out ", partly ? "a part of " : "", "what message ",
      number + 1, " of ", count, " says (role '", Printable(message.role.substr(0, 64)),
      "'), in each of the forms that it was tried in; the option chat_template of lm_models gives "
      "the model another template"));
}

}  // namespace

std::optional<std::vector<ChatMessage>> ShapeMessages(absl::Span<const ChatMessage> messages,
                                                      const MessageShape& shape) {
  Messages shaped(messages.begin(), messages.end());
  if (shape.developer_is_system) {
    for (ChatMessage& message : shaped) {
      if (message.role == kDeveloper) message.role = std::string(kSystem);
    }
  }
  if (shape.systems != MessageShape::Systems::kAsGiven && !MoveSystems(shape.systems, &shaped)) {
    return std::nullopt;
  }
  if (shape.contents != MessageShape::Contents::kAsGiven) SetContents(shape.contents, &shaped);
  return shaped;
}

absl::StatusOr<MessageShape> FindShape(absl::Span<const ChatMessage> messages,
                                       const RenderMessages& render) {
  const Probe probe(messages);
  absl::Status lost;
  bool refuses_given = false;
  for (const MessageShape& shape : ShapesFor(probe.messages())) {
    const auto shaped = ShapeMessages(probe.messages(), shape);
    if (!shaped.has_value()) continue;
    const absl::StatusOr<std::string> text = render(*shaped);
    if (absl::IsCancelled(text.status())) return text.status();
    refuses_given |= shape.IsAsGiven() && !text.ok();
    if (!text.ok()) continue;
    const bool has_lists =
        std::any_of(shaped->begin(), shaped->end(),
                    [](const ChatMessage& message) { return message.content.Is(Kind::kList); });
    const std::optional<Probe::Lost> gone = probe.FindLost(*text, has_lists);
    if (!gone.has_value()) return shape;
    if (lost.ok()) {
      lost = LostError(messages[gone->message], gone->message, messages.size(), gone->partly);
    }
  }
  if (!refuses_given) RETURN_IF_ERROR(lost);
  return MessageShape();
}

bool WritesAll(absl::Span<const ChatMessage> messages, absl::string_view rendered) {
  return std::all_of(messages.begin(), messages.end(), [rendered](const ChatMessage& message) {
    if (!message.content.Is(Kind::kString)) return false;
    const std::string text(message.content.text().bytes());
    return absl::StrContains(rendered, absl::StripAsciiWhitespace(text));
  });
}

std::string ShapeMemory::NameOf(absl::Span<const ChatMessage> messages) {
  std::string name;
  const auto add = [&name](absl::string_view text) {
    absl::StrAppend(&name, text.size(), ":", text);
  };
  for (const ChatMessage& message : messages) {
    if (name.size() > kMostNameBytes) return "";
    add(message.role);
    const TemplateValue& content = message.content;
    if (content.Is(Kind::kString)) {
      const absl::string_view text = content.text().bytes();
      if (!MarksIn(message, text).empty()) return "";
      name += IsBlank(text) ? 'b' : 't';
    } else if (content.Is(Kind::kList)) {
      return "";  // what its parts are
    } else {
      name += content.Is(Kind::kUndefined) ? 'u' : 'o';
    }
    for (const auto& other : message.others) add(other.first.text().bytes());
    name += ';';
  }
  return name.size() > kMostNameBytes ? "" : name;
}

std::optional<absl::StatusOr<MessageShape>> ShapeMemory::Find(absl::string_view name) const {
  absl::MutexLock lock(&mutex_);
  const auto found = shapes_.find(name);
  return found != shapes_.end() ? std::optional(found->second) : std::nullopt;
}

void ShapeMemory::Remember(absl::string_view name, const absl::StatusOr<MessageShape>& shape) {
  absl::MutexLock lock(&mutex_);
  if (shapes_.size() >= kMostShapes) shapes_.clear();
  shapes_.try_emplace(std::string(name), shape);
}

}  // namespace lm
