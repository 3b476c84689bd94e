#include "engine/text/chat/message_shape.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/checkpoint.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/text/chat/thinking_marks.h"
#include "engine/text/template/template_strings.h"

namespace lm {
namespace {

using Kind = TemplateValue::Kind;
using Messages = std::vector<ChatMessage>;

constexpr absl::string_view kSystem = "system";
constexpr absl::string_view kDeveloper = "developer";
constexpr absl::string_view kUser = "user";
constexpr absl::string_view kAssistant = "assistant";
constexpr absl::string_view kBetween = "\n\n";
constexpr absl::string_view kBetweenParts = "\n";

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

// Appends a list's texts, with a line end in front of each but what comes first of all; false where
// one of its parts is no text.
bool AppendParts(const TemplateValue::List& parts, bool first, TemplateText* whole) {
  for (const TemplateValue& part : parts) {
    const TemplateValue* const text = TextOf(part);
    if (text == nullptr || Interrupted()) return false;
    if (!std::exchange(first, false)) whole->Append(kBetweenParts, TextKind::kInput);
    whole->Append(text->text());
  }
  return true;
}

// A content of nothing but texts as one, or nullopt.
std::optional<TemplateValue> OneText(const TemplateValue& content) {
  if (content.Is(Kind::kString)) return content;
  if (!content.Is(Kind::kList) || content.list().empty()) return std::nullopt;
  TemplateText whole;
  if (!AppendParts(content.list(), /*first=*/true, &whole)) return std::nullopt;
  return TemplateValue::String(std::move(whole));
}

// Contents as one, with an empty line between each two.
class JoinedContents {
 public:
  bool empty() const { return !last_.has_value(); }

  // False where there are others, and one of them is no text.
  bool Add(TemplateValue content) {
    const bool is_text = content.Is(Kind::kString) || content.Is(Kind::kList);
    if (last_.has_value() && !(is_text && AppendLast())) return false;
    last_ = std::move(content);
    return true;
  }

  // A list where the last one is. REQUIRES: !empty().
  TemplateValue Take() {
    TemplateValue last = *std::exchange(last_, std::nullopt);
    if (before_.empty()) return last;
    TemplateText before = std::exchange(before_, {});
    if (last.Is(Kind::kString)) {
      before.Append(last.text());
      return TemplateValue::String(std::move(before));
    }
    TemplateValue::List parts = {PartOf(TemplateValue::String(std::move(before)))};
    parts.insert(parts.end(), last.list().begin(), last.list().end());
    return TemplateValue::Sequence(Kind::kList, std::move(parts));
  }

 private:
  bool AppendLast() {
    const bool first = before_.empty();
    if (last_->Is(Kind::kString)) {
      before_.Append(last_->text());
    } else if (!last_->Is(Kind::kList) || (first && last_->list().empty()) ||
               !AppendParts(last_->list(), first, &before_)) {
      return false;
    }
    before_.Append(kBetween, TextKind::kInput);
    return true;
  }

  TemplateText before_;  // all but the last, and the line between
  std::optional<TemplateValue> last_;
};

bool MoveSystems(MessageShape::Systems systems, Messages* messages) {
  Messages moved;
  JoinedContents leading, waiting;
  for (ChatMessage& message : *messages) {
    if (Interrupted()) return false;
    const bool leads = systems == MessageShape::Systems::kOneInFront && waiting.empty() &&
                       moved.size() <= 1 && (moved.empty() || moved[0].role == kSystem);
    if (message.role == kSystem) {
      JoinedContents& joined = leads ? leading : waiting;
      if (!joined.Add(std::move(message.content))) return false;
      if (leads && moved.empty()) moved.push_back(std::move(message));
      continue;
    }
    if (message.role == kUser && !waiting.empty()) {
      if (!waiting.Add(std::move(message.content))) return false;
      message.content = waiting.Take();
    }
    moved.push_back(std::move(message));
  }
  if (!leading.empty()) moved[0].content = leading.Take();
  *messages = std::move(moved);
  return waiting.empty();
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
// marks of reasoning between them, where it has those. What is interrupted is left unfinished.
class Probe {
 public:
  explicit Probe(absl::Span<const ChatMessage> messages)
      : messages_(messages.begin(), messages.end()) {
    for (ChatMessage& message : messages_) {
      if (Interrupted()) return;
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
    const std::vector<bool> is_there = WordsIn(text, has_lists);
    std::vector<bool> has(messages_.size());
    std::optional<size_t> lost;
    for (size_t i = 0; i < owners_.size(); ++i) {
      if (is_there[i]) {
        has[owners_[i]] = true;
      } else if (!lost.has_value()) {
        lost = owners_[i];
      }
    }
    if (!lost.has_value()) return std::nullopt;
    return Lost{*lost, has[*lost]};
  }

 private:
  static constexpr absl::string_view kWordBegin = "qw", kWordEnd = "wq";

  static std::string WordOf(size_t number) { return absl::StrCat(kWordBegin, number, kWordEnd); }

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
      if (Interrupted()) break;
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

  // By word, whether the text has it.
  std::vector<bool> WordsIn(absl::string_view text, bool has_lists) const {
    std::vector<bool> is_there(owners_.size());
    size_t seen = 0;
    for (size_t at = 0; (at = text.find(kWordBegin, at)) != text.npos; at += kWordBegin.size()) {
      if (++seen % 256 == 0 && Interrupted()) break;
      const std::optional<size_t> number = NumberOf(text.substr(at));
      if (!number.has_value() || *number >= is_there.size()) continue;
      if (!has_lists || !IsWrittenPart(text.substr(0, at))) is_there[*number] = true;
    }
    return is_there;
  }

  // Of the word that a text begins with. REQUIRES: it begins like one.
  static std::optional<size_t> NumberOf(absl::string_view text) {
    const size_t end = text.find_first_not_of("0123456789", kWordBegin.size());
    size_t number = 0;
    const bool is_word =
        end != text.npos &&
        absl::SimpleAtoi(text.substr(kWordBegin.size(), end - kWordBegin.size()), &number) &&
        absl::StartsWith(text, WordOf(number));
    return is_word ? std::optional(number) : std::nullopt;
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
  RETURN_IF_ERROR(Checkpoint());
  absl::Status lost;
  bool refuses_given = false;
  for (const MessageShape& shape : ShapesFor(probe.messages())) {
    const auto shaped = ShapeMessages(probe.messages(), shape);
    RETURN_IF_ERROR(Checkpoint());
    if (!shaped.has_value()) continue;
    const absl::StatusOr<std::string> text = render(*shaped);
    if (absl::IsCancelled(text.status())) return text.status();
    refuses_given |= shape.IsAsGiven() && !text.ok();
    if (!text.ok()) continue;
    const bool has_lists =
        std::any_of(shaped->begin(), shaped->end(),
                    [](const ChatMessage& message) { return message.content.Is(Kind::kList); });
    const std::optional<Probe::Lost> gone = probe.FindLost(*text, has_lists);
    RETURN_IF_ERROR(Checkpoint());
    if (!gone.has_value()) return shape;
    if (lost.ok()) {
      lost = LostError(messages[gone->message], gone->message, messages.size(), gone->partly);
    }
  }
  if (!refuses_given) RETURN_IF_ERROR(lost);
  return MessageShape();
}

bool WritesAll(absl::Span<const ChatMessage> messages, absl::string_view rendered) {
  size_t last = 0;  // most stand in their order
  return std::all_of(messages.begin(), messages.end(), [&](const ChatMessage& message) {
    if (!message.content.Is(Kind::kString) || Interrupted()) return false;
    const absl::string_view text = absl::StripAsciiWhitespace(message.content.text().bytes());
    size_t at = FindFirst(rendered, text, last);
    if (at == rendered.npos && last > 0) at = FindFirst(rendered, text);
    if (at != rendered.npos) last = at;
    return at != rendered.npos;
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
