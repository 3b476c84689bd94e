#include "engine/runtime/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/text/json_value.h"

namespace lm {
namespace {

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// The part of `text` that its tokens stand for without the first (or last) `drop`, cut between
// characters.
absl::string_view WithoutTokens(absl::string_view text, absl::Span<const int32_t> tokens,
                                size_t drop, bool at_start, const Tokenizer& tokenizer) {
  const size_t keep = tokens.size() - std::min(drop, tokens.size());
  const absl::Span<const int32_t> kept =
      at_start ? tokens.subspan(tokens.size() - keep) : tokens.subspan(0, keep);
  size_t bytes = 0;
  for (int32_t token : kept) bytes += tokenizer.TokenBytes(token).size();
  bytes = std::min(bytes, text.size());  // a tokenizer may put a space in front of the text
  if (at_start) {
    size_t begin = text.size() - bytes;
    while (begin < text.size() && IsContinuation(text[begin])) ++begin;
    return text.substr(begin);
  }
  while (bytes > 0 && bytes < text.size() && IsContinuation(text[bytes])) --bytes;
  return text.substr(0, bytes);
}

// The message of a JSON object; `number` is its place, from 1 on.
absl::StatusOr<ChatMessage> ReadMessage(const TemplateValue& object, size_t number) {
  auto wrong = [number](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "message ", number, " of the prompt must be an object with a role and a content, ", what));
  };
  if (!object.Is(TemplateValue::Kind::kDict)) return wrong(absl::StrCat("got ", object.TypeName()));
  ChatMessage message;
  bool has_role = false, has_content = false;
  for (const auto& [name, value] : object.entries()) {
    if (name.text().bytes() == "role") {
      if (!value.Is(TemplateValue::Kind::kString)) return wrong("its role is not a string");
      message.role = std::string(value.text().bytes());
      has_role = true;
    } else if (name.text().bytes() == "content") {
      message.content = value;
      has_content = true;
    } else {
      message.others.emplace_back(name, value);
    }
  }
  if (!has_role) return wrong("it has no role");
  if (!has_content) return wrong("it has no content");
  return message;
}

// The messages of a prompt: a user's, or those of a JSON array; behind a system prompt.
absl::StatusOr<std::vector<ChatMessage>> ReadConversation(absl::string_view prompt,
                                                          absl::string_view system,
                                                          const GenerationOptions& options) {
  std::vector<ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", TemplateValue::Input(system), {}});
  if (!options.messages) {
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
    ASSIGN_OR_RETURN(ChatMessage message, ReadMessage(json->list()[i], i + 1));
    if (message.role == "system" && !system.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "message ", i + 1, " of the prompt is a system message, and there is a system prompt"));
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace

Session::Session(std::shared_ptr<Engine> engine, std::string salt, std::optional<MemoAccess> memo)
    : engine_(std::move(engine)), salt_(std::move(salt)), memo_(std::move(memo)) {}

absl::StatusOr<std::shared_ptr<Request>> Session::Submit(absl::string_view prompt,
                                                         absl::string_view system,
                                                         const GenerationOptions& options,
                                                         bool stream) const {
  ASSIGN_OR_RETURN(RequestSpec spec, MakeSpec(prompt, /*suffix=*/"", system, options));
  spec.stream = stream;
  return Queue(std::move(spec));
}

absl::StatusOr<std::shared_ptr<Request>> Session::SubmitEmbedding(
    absl::string_view text, Pooling pooling, const GenerationOptions& options) const {
  const Tokenizer& tokenizer = model().tokenizer();
  ASSIGN_OR_RETURN(std::vector<int32_t> tokens, tokenizer.EncodePlain(text));
  const size_t most = engine_->max_sequence_tokens();
  if (tokens.size() > most && options.on_overflow == OnOverflow::kTruncateEnd) {
    tokens.resize(most);
  } else if (tokens.size() > most && options.on_overflow == OnOverflow::kTruncateStart) {
    const bool has_bos = tokens.front() == tokenizer.vocabulary().bos;
    tokens.erase(tokens.begin() + has_bos, tokens.end() - (most - has_bos));
  }
  if (tokens.empty()) {
    return absl::InvalidArgumentError("the text has no tokens, and so no embedding");
  }
  return Queue({.prompt = std::move(tokens), .options = options, .salt = salt_, .embed = pooling});
}

absl::StatusOr<std::shared_ptr<Request>> Session::Queue(RequestSpec spec) const {
  if (tally_ != nullptr) return tally_->Take(engine_, std::move(spec));
  if (memo_.has_value()) return ProcessMemo().Submit(*engine_, std::move(spec), *memo_);
  return engine_->Submit(std::move(spec));
}

absl::StatusOr<std::shared_ptr<Request>> Session::SubmitChoice(
    absl::string_view text, absl::string_view question, absl::string_view system,
    const GenerationOptions& options) const {
  ASSIGN_OR_RETURN(RequestSpec spec, MakeSpec(text, question, system, options));
  spec.wants_first_choices = true;
  // The choices come before any sampling: without it, the request is the same for the memo.
  const GenerationOptions none;
  spec.options.temperature = none.temperature;
  spec.options.repeat_penalty = none.repeat_penalty;
  spec.options.logit_bias = none.logit_bias;
  return Queue(std::move(spec));
}

absl::StatusOr<RequestSpec> Session::MakeSpec(absl::string_view prompt, absl::string_view suffix,
                                              absl::string_view system,
                                              const GenerationOptions& options) const {
  if (options.messages && !suffix.empty()) {
    return absl::InvalidArgumentError("messages are for generate and its like, not for a question");
  }
  ASSIGN_OR_RETURN(std::vector<ChatMessage> messages,
                   ReadConversation(absl::StrCat(prompt, suffix), system, options));
  ASSIGN_OR_RETURN(std::vector<int32_t> tokens, EncodeChat(messages, options));
  const int64_t most = int64_t{engine_->max_sequence_tokens()} - 1;
  if (options.on_overflow != OnOverflow::kError && !options.messages &&
      static_cast<int64_t>(tokens.size()) > most) {
    RETURN_IF_ERROR(Truncate(prompt, suffix, system, options, &tokens));
  }
  std::vector<int32_t> borders;
  if (model().language_model().cache().recurrent()) {
    ASSIGN_OR_RETURN(borders, FindBorders(tokens, std::move(messages), options));
  }
  return RequestSpec{.prompt = std::move(tokens),
                     .options = options,
                     .salt = salt_,
                     .borders = std::move(borders)};
}

// Where the text of the last message begins: what is before it is the same for all prompts.
absl::StatusOr<std::vector<int32_t>> Session::FindBorders(absl::Span<const int32_t> tokens,
                                                          std::vector<ChatMessage> messages,
                                                          const GenerationOptions& options) const {
  TemplateValue& last = messages.back().content;
  const bool begins_so =
      last.Is(TemplateValue::Kind::kString) && absl::StartsWith(last.text().bytes(), "a");
  last = TemplateValue::Input(begins_so ? "b" : "a");
  ASSIGN_OR_RETURN(const std::vector<int32_t> others, EncodeChat(messages, options));
  const auto parting = std::mismatch(tokens.begin(), tokens.end(), others.begin(), others.end());
  const int32_t common = static_cast<int32_t>(parting.first - tokens.begin());
  if (common < kLeastHeldPrefix || common == static_cast<int32_t>(tokens.size())) {
    return std::vector<int32_t>();
  }
  return std::vector<int32_t>{common};
}

absl::Status Session::Truncate(absl::string_view prompt, absl::string_view suffix,
                               absl::string_view system, const GenerationOptions& options,
                               std::vector<int32_t>* tokens) const {
  const int64_t context = engine_->max_sequence_tokens();
  const int64_t answer =
      std::clamp<int64_t>(options.max_tokens, 1, std::max<int64_t>(context / 2, 1));
  const int64_t most = context - answer;
  const bool at_start = options.on_overflow == OnOverflow::kTruncateStart;
  const Tokenizer& tokenizer = model().tokenizer();
  // Tokens of the prompt alone, to know what to cut. Encoded again with the template around it the
  // rest may have a token more or less than counted, hence the loop; each turn takes more away.
  std::vector<int32_t> own;
  RETURN_IF_ERROR(tokenizer.Encode({{std::string(prompt), TextKind::kPlain}}, &own));
  size_t drop = 0;
  while (static_cast<int64_t>(tokens->size()) > most) {
    if (drop >= own.size()) {
      return absl::OutOfRangeError(absl::StrCat("the system prompt and the template alone have ",
                                                tokens->size(),
                                                " tokens; with room for the answer at most ", most,
                                                " of the context's ", context, " may be used"));
    }
    drop += tokens->size() - most;
    ASSIGN_OR_RETURN(
        *tokens,
        EncodePrompt(absl::StrCat(WithoutTokens(prompt, own, drop, at_start, tokenizer), suffix),
                     system, options));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Request>> Session::SubmitScoring(absl::string_view text) const {
  ASSIGN_OR_RETURN(std::vector<int32_t> tokens, model().tokenizer().EncodePlain(text));
  return Queue({.prompt = std::move(tokens), .options = {}, .salt = salt_, .score_prompt = true});
}

absl::StatusOr<RenderedChat> Session::RenderChat(absl::Span<const ChatMessage> messages,
                                                 const GenerationOptions& options) const {
  ChatOptions chat;
  chat.now = absl::ToCivilSecond(absl::Now(), absl::LocalTimeZone());
  if (!options.template_args.empty()) {
    ASSIGN_OR_RETURN(const TemplateValue args, ParseJsonValue(options.template_args));
    for (const auto& [name, value] : args.entries()) {
      chat.template_args.emplace_back(std::string(name.text().bytes()), value);
    }
  }
  return model().chat_template().Render(messages, chat);
}

absl::StatusOr<std::vector<int32_t>> Session::EncodeChat(absl::Span<const ChatMessage> messages,
                                                         const GenerationOptions& options) const {
  ASSIGN_OR_RETURN(const RenderedChat rendered, RenderChat(messages, options));
  std::vector<int32_t> tokens;
  if (rendered.adds_bos) tokens.push_back(model().tokenizer().vocabulary().bos);
  RETURN_IF_ERROR(model().tokenizer().Encode(rendered.pieces, &tokens));
  return tokens;
}

absl::StatusOr<std::string> Session::Render(absl::string_view prompt, absl::string_view system,
                                            const GenerationOptions& options) const {
  ASSIGN_OR_RETURN(const std::vector<ChatMessage> messages,
                   ReadConversation(prompt, system, options));
  ASSIGN_OR_RETURN(const RenderedChat rendered, RenderChat(messages, options));
  return rendered.Text();
}

absl::StatusOr<std::vector<int32_t>> Session::EncodePrompt(absl::string_view prompt,
                                                           absl::string_view system,
                                                           const GenerationOptions& options) const {
  ASSIGN_OR_RETURN(const std::vector<ChatMessage> messages,
                   ReadConversation(prompt, system, options));
  return EncodeChat(messages, options);
}

}  // namespace lm
