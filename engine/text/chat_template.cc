#include "engine/text/chat_template.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/status_macros.h"
#include "engine/text/template_program.h"
#include "engine/text/token_index.h"

namespace lm {
namespace {

constexpr absl::string_view kSystemBegin = "<|im_start|>system\n";
constexpr absl::string_view kUserBegin = "<|im_start|>user\n";
constexpr absl::string_view kEnd = "<|im_end|>\n";
constexpr absl::string_view kAssistantBegin = "<|im_start|>assistant\n";

using Segments = std::vector<TemplateSegment>;

TemplateSegment Text(std::string text) { return {TemplateSegment::Kind::kText, std::move(text)}; }

// Takes BOS from the front.
bool TakeBos(Segments* segments) {
  if (segments->empty() || segments->front().kind != TemplateSegment::Kind::kBos) return false;
  segments->erase(segments->begin());
  return true;
}

// Whether a conversation without a system message comes out as ChatML, and with which default.
bool MatchDefault(const Segments& segments, std::string* default_system) {
  const TemplateSegment user = {TemplateSegment::Kind::kUser, ""};
  if (segments.size() != 3 || segments[0].kind != TemplateSegment::Kind::kText ||
      !(segments[1] == user) || !(segments[2] == Text(absl::StrCat(kEnd, kAssistantBegin)))) {
    return false;
  }
  absl::string_view head = segments[0].text;
  if (!absl::ConsumeSuffix(&head, kUserBegin)) return false;
  if (head.empty()) return true;
  if (!absl::ConsumePrefix(&head, kSystemBegin) || !absl::ConsumeSuffix(&head, kEnd)) return false;
  *default_system = std::string(head);
  return !head.empty() && !absl::StrContains(head, "<|im_");
}

absl::Status Refuse(absl::string_view source, absl::string_view why) {
  return absl::UnimplementedError(absl::StrCat("the model's chat template, which begins ",
                                               QuoteName(source), ", is not supported: ", why));
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Create(const Vocabulary& vocabulary) {
  const std::string& source = vocabulary.chat_template;
  if (source.empty()) return ChatTemplate(Kind::kPlain, vocabulary.add_bos);

  absl::StatusOr<Segments> with_system = RunTemplate(source, /*with_system=*/true);
  if (!with_system.ok()) return Refuse(source, with_system.status().message());
  absl::StatusOr<Segments> without = RunTemplate(source, /*with_system=*/false);
  if (!without.ok()) return Refuse(source, without.status().message());

  const bool bos = TakeBos(&*with_system);
  if (TakeBos(&*without) != bos) return Refuse(source, "it sometimes begins with BOS");
  if (bos && vocabulary.bos < 0) {
    return Refuse(source, "it begins with BOS, which the vocabulary does not name");
  }
  const Segments chat_ml = {Text(std::string(kSystemBegin)),
                            {TemplateSegment::Kind::kSystem, ""},
                            Text(absl::StrCat(kEnd, kUserBegin)),
                            {TemplateSegment::Kind::kUser, ""},
                            Text(absl::StrCat(kEnd, kAssistantBegin))};
  ChatTemplate chat(Kind::kChatMl, bos || vocabulary.add_bos);
  if (*with_system != chat_ml || !MatchDefault(*without, &chat.default_system_)) {
    return Refuse(source, "it is not ChatML");
  }
  return chat;
}

std::vector<TextPiece> ChatTemplate::Render(absl::string_view system,
                                            absl::string_view prompt) const {
  std::vector<TextPiece> pieces;
  auto markup = [&pieces](std::string text) {
    pieces.push_back({std::move(text), TextKind::kMarkup});
  };
  auto plain = [&pieces](absl::string_view text) {
    pieces.push_back({std::string(text), TextKind::kPlain});
  };
  if (kind_ == Kind::kPlain) {
    if (!system.empty()) {
      plain(system);
      plain("\n\n");
    }
    plain(prompt);
    return pieces;
  }
  if (!system.empty()) {
    markup(std::string(kSystemBegin));
    plain(system);
    markup(absl::StrCat(kEnd, kUserBegin));
  } else if (!default_system_.empty()) {
    markup(absl::StrCat(kSystemBegin, default_system_, kEnd, kUserBegin));
  } else {
    markup(std::string(kUserBegin));
  }
  plain(prompt);
  markup(absl::StrCat(kEnd, kAssistantBegin));
  return pieces;
}

}  // namespace lm
