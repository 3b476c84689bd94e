#include "engine/runtime/local_generator.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/json.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/adapter_text.h"
#include "engine/runtime/constraint_cache.h"
#include "engine/runtime/memo_key.h"
#include "engine/runtime/reasoning.h"
#include "engine/runtime/render_chat.h"
#include "engine/runtime/vote.h"
#include "engine/text/chat/conversation.h"
#include "engine/text/longest_part.h"

namespace lm {
namespace {

// Tokens that an answer may need: of choices no more than the longest has bytes.
int64_t AnswerRoom(const GenerationOptions& options) {
  if (options.constraint.kind != AnswerConstraint::Kind::kChoices) return options.max_tokens;
  const std::optional<Json> choices = Json::Parse(options.constraint.text);
  size_t most = 0;
  if (choices && choices->is_array()) {
    for (const Json& choice : choices->array()) {
      if (choice.is_string()) most = std::max(most, choice.string().size());
    }
  }
  return static_cast<int64_t>(most);
}

// Likewise the reasoning before it.
int64_t ReasoningRoom(const GenerationOptions& options) {
  return TokensBesidePrompt(options) - options.max_tokens;
}

// The side of the text that stays.
TextSide SideLeft(OnOverflow how) {
  return how == OnOverflow::kTruncateStart ? TextSide::kEnd : TextSide::kBegin;
}

// The part of `text`, at that side, that its tokens stand for without so many of them.
absl::string_view WithoutTokens(absl::string_view text, absl::Span<const int32_t> tokens,
                                size_t drop, TextSide side, const Tokenizer& tokenizer) {
  auto bytes_of = [&](absl::Span<const int32_t> some) {
    size_t bytes = 0;
    for (int32_t token : some) bytes += tokenizer.TokenBytes(token).size();
    return bytes;
  };
  const size_t keep = tokens.size() - std::min(drop, tokens.size());
  if (keep == 0) return PartAt(side, text, 0);
  // A tokenizer may put a space in front of the text.
  const size_t all = bytes_of(tokens);
  if (all != text.size() && all != text.size() + 1) {
    return PartAt(side, text, text.size() * keep / tokens.size());
  }
  return PartAt(side, text,
                bytes_of(side == TextSide::kBegin ? tokens.subspan(0, keep)
                                                  : tokens.subspan(tokens.size() - keep)));
}

// The longest part of `text`, at that side, of whose prompt `excess_of` finds no token too many;
// nothing where there is none. `excess`: what all of it has too many, > 0.
absl::StatusOr<absl::string_view> CutToFit(
    absl::string_view text, TextSide side, int64_t excess, const Tokenizer& tokenizer,
    absl::FunctionRef<absl::StatusOr<int64_t>(absl::string_view)> excess_of) {
  // Tokens of the text alone, to know about what to cut. Encoded again with other words around it
  // the rest may have a token more or less than counted.
  std::vector<int32_t> own;
  RETURN_IF_ERROR(tokenizer.Encode({{std::string(text), TextKind::kPlain}}, &own));
  absl::string_view kept = text;
  size_t over = text.size();
  for (size_t drop = 0; excess > 0 && !kept.empty();) {
    over = kept.size();
    drop += excess;
    kept = WithoutTokens(text, own, drop, side, tokenizer);
    ASSIGN_OR_RETURN(excess, excess_of(kept));
  }
  if (excess > 0) return kept;
  return LongestPart(text, side, {.fits = kept.size(), .over = over, .guess = kept.size()},
                     [&](absl::string_view part) -> absl::StatusOr<bool> {
                       ASSIGN_OR_RETURN(const int64_t its, excess_of(part));
                       return its <= 0;
                     });
}

// RequestSpec::text: a JSON array of the conversation's words, as strings, and the template's, each
// in an array of its own: what tells "<|im_end|>" of the one from that of the other. A null in
// front stands for BOS, an object at the end for what the answer begins with.
std::string TextForm(const RenderedChat& chat, absl::string_view begun) {
  std::string form = "[";
  if (chat.adds_bos) form.append("null,");
  for (const TextPiece& piece : chat.pieces) {
    const bool markup = piece.kind == TextKind::kMarkup;
    absl::StrAppend(&form, markup ? "[" : "", JsonString(piece.text), markup ? "]," : ",");
  }
  if (!begun.empty()) absl::StrAppend(&form, R"({"begun":)", JsonString(begun), "},");
  if (form.back() == ',') form.pop_back();
  form.push_back(']');
  return form;
}

absl::StatusOr<std::vector<ChatMessage>> MessagesOf(const TextRequest& request,
                                                    absl::string_view prompt) {
  if (request.options.messages && !request.question.empty()) {
    return absl::InvalidArgumentError("messages are for generate and its like, not for a question");
  }
  RETURN_IF_ERROR(CheckExamples(request.options));
  ASSIGN_OR_RETURN(std::vector<ChatMessage> messages,
                   ReadConversation(absl::StrCat(prompt, request.question), request.system,
                                    request.options.messages));
  std::vector<ChatMessage> examples;
  for (const Example& example : request.options.examples) {
    const std::string asked = absl::StrCat(example.prompt, request.question);
    examples.push_back({"user", TemplateValue::Input(asked), {}});
    examples.push_back({"assistant", TemplateValue::Input(example.answer), {}});
  }
  messages.insert(messages.end() - 1, std::make_move_iterator(examples.begin()),
                  std::make_move_iterator(examples.end()));
  return messages;
}

bool IsPlain(const TextRequest& request) {
  return request.task == Task::kEmbed || request.task == Task::kScore;
}

std::string PlainText(const TextRequest& request) {
  return absl::StrCat(request.task == Task::kEmbed ? request.system : "", request.prompt);
}

// Takes tokens off an end of a plain text, but not what the model adds there, nor those of `head`,
// which it begins with, until `most` are left. Errors are those of the tokenizer.
absl::Status CutTokens(OnOverflow how, size_t most, absl::string_view head,
                       const Tokenizer& tokenizer, std::vector<int32_t>* tokens) {
  if (how == OnOverflow::kError || tokens->size() <= most) return absl::OkStatus();
  const size_t drop = tokens->size() - most;
  const auto end = tokens->end() - (tokenizer.LastToken() >= 0 ? 1 : 0);
  if (how == OnOverflow::kTruncateEnd) {
    tokens->erase(end - drop, end);
    return absl::OkStatus();
  }
  auto begin = tokens->begin() + (tokenizer.vocabulary().add_bos ? 1 : 0);
  if (!head.empty()) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> its, tokenizer.EncodePlain(head));
    begin = std::mismatch(tokens->begin(), end - drop, its.begin(), its.end()).first;
  }
  tokens->erase(begin, begin + drop);
  return absl::OkStatus();
}

}  // namespace

std::string LocalGenerator::Settings() const {
  std::string settings;
  if (info().kv_type != DType::kF16) absl::StrAppend(&settings, "/", KvTypeName(info().kv_type));
  if (info().short_rope) absl::StrAppend(&settings, "/short");
  if (info().thinking_marks.has_value()) {
    Json marks = Json::MakeArray();
    for (const std::string& mark : *info().thinking_marks) marks.Append(mark);
    absl::StrAppend(&settings, "/marks:", marks.Dump());
  }
  return settings;
}

std::string LocalGenerator::WithSettings(absl::string_view name) const {
  return absl::StrCat(name, "/", info().device, Settings());
}

absl::StatusOr<std::string> LocalGenerator::DigestFor(const GenerationOptions& options) const {
  ASSIGN_OR_RETURN(std::string name, digest());
  ASSIGN_OR_RETURN(const AdapterSet adapters, AdaptersOf(options));
  if (!info().chat_template.empty()) absl::StrAppend(&name, "/template:", info().chat_template);
  if (!adapters.empty()) absl::StrAppend(&name, "/lora:", AdaptersKey(info(), adapters));
  return name;
}

absl::StatusOr<std::string> LocalGenerator::lasting_identity() const {
  ASSIGN_OR_RETURN(const std::string name, digest());
  return WithSettings(name);
}

absl::StatusOr<RequestSpec> LocalGenerator::Prepare(const TextRequest& request) const {
  if (request.task == Task::kRank) {
    RETURN_IF_ERROR(CheckRanks(info()));
  } else if (request.task != Task::kEmbed) {
    RETURN_IF_ERROR(CheckGenerates(info()));
  }
  ASSIGN_OR_RETURN(RequestSpec spec, request.task == Task::kRank ? PreparePair(request)
                                     : IsPlain(request)          ? PrepareText(request)
                                                                 : PrepareChat(request));
  spec.salt = std::string(request.salt);
  ASSIGN_OR_RETURN(spec.adapters, AdaptersOf(request.options));
  return spec;
}

absl::StatusOr<AdapterSet> LocalGenerator::AdaptersOf(const GenerationOptions& options) const {
  const std::vector<AdapterInfo>& known = info().adapters;
  std::vector<float> scales;
  for (const AdapterInfo& adapter : known) {
    scales.push_back(options.lora.has_value() ? 0 : adapter.scale);
  }
  for (const AdapterChoice& choice : options.lora.value_or(std::vector<AdapterChoice>())) {
    const auto named = std::find_if(known.begin(), known.end(),
                                    [&](const AdapterInfo& a) { return a.name == choice.name; });
    if (named == known.end()) {
      const std::string names = absl::StrJoin(known, ", ", [](std::string* out, const auto& a) {
        absl::StrAppend(out, "'", Printable(a.name), "'");
      });
      return absl::InvalidArgumentError(
          absl::StrCat("lora: the model '", Printable(info().name), "' has no adapter named '",
                       Printable(choice.name.substr(0, 64)), "' (its options in lm_models have ",
                       names.empty() ? "none" : names, ")"));
    }
    scales[named - known.begin()] = choice.scale;
  }
  AdapterSet adapters;
  for (size_t i = 0; i < scales.size(); ++i) {
    if (scales[i] != 0) adapters.push_back({static_cast<int32_t>(i), scales[i]});
  }
  return adapters;
}

absl::StatusOr<RequestSpec> LocalGenerator::PrepareText(const TextRequest& request) const {
  const Tokenizer& tokenizer = engine_->model().tokenizer();
  std::string text = PlainText(request);
  ASSIGN_OR_RETURN(std::vector<int32_t> tokens, tokenizer.EncodePlain(text));
  const OnOverflow how = request.options.on_overflow;
  if (request.task == Task::kScore) {
    RETURN_IF_ERROR(CutTokens(how, max_sequence_tokens(), "", tokenizer, &tokens));
    GenerationOptions options;
    options.timeout_ms = request.options.timeout_ms;
    options.priority = request.options.priority;
    return RequestSpec{
        .prompt = std::move(tokens), .options = std::move(options), .score_prompt = true};
  }
  if (!request.pooling.has_value() && info().ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model '", Printable(info().name), "' (", info().architecture,
        ") is a reranker, for lm_rerank; where it is to embed texts all the same, name "
        "a pooling"));
  }
  RETURN_IF_ERROR(CutTokens(how, max_sequence_tokens(), request.system, tokenizer, &tokens));
  if (tokens.empty()) {
    return absl::InvalidArgumentError(
        "the text has no tokens, and so no embedding (nullif(x, '') leaves it out, or on_error)");
  }
  std::optional<int64_t> kept;
  if (how != OnOverflow::kError && !request.system.empty()) kept = request.system.size();
  return RequestSpec{.prompt = std::move(tokens),
                     .text = Memoizable(request.options) ? std::move(text) : "",
                     .kept_end = kept,
                     .options = request.options,
                     .embed = request.pooling.value_or(info().pooling.value_or(Pooling::kMean))};
}

// What does not fit is taken off the prompt.
absl::StatusOr<RequestSpec> LocalGenerator::PreparePair(const TextRequest& request) const {
  const Tokenizer& tokenizer = engine_->model().tokenizer();
  ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                   tokenizer.EncodePair(request.question, request.prompt));
  const OnOverflow how = request.options.on_overflow;
  absl::string_view kept = request.prompt;
  auto excess = [&] { return static_cast<int64_t>(tokens.size()) - max_sequence_tokens(); };
  if (excess() > 0) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> query, tokenizer.EncodePair(request.question, ""));
    if (static_cast<int64_t>(query.size()) > max_sequence_tokens()) {
      return absl::OutOfRangeError(absl::StrCat(
          "the query, which is never cut, has ", query.size(),
          " tokens with what stands around it, the model reads ", max_sequence_tokens()));
    }
  }
  if (how != OnOverflow::kError && excess() > 0) {
    ASSIGN_OR_RETURN(kept, CutToFit(request.prompt, SideLeft(how), excess(), tokenizer,
                                    [&](absl::string_view part) -> absl::StatusOr<int64_t> {
                                      ASSIGN_OR_RETURN(
                                          tokens, tokenizer.EncodePair(request.question, part));
                                      return excess();
                                    }));
    ASSIGN_OR_RETURN(tokens, tokenizer.EncodePair(request.question, kept));
  }
  std::string pair;
  if (Memoizable(request.options)) {
    pair = Json::MakeArray().Append(request.question).Append(kept).Dump();
  }
  return RequestSpec{.prompt = std::move(tokens),
                     .text = std::move(pair),
                     .options = request.options,
                     .embed = info().pooling.value_or(Pooling::kFirst),
                     .ranks = true};
}

absl::StatusOr<RequestSpec> LocalGenerator::PrepareChat(const TextRequest& request) const {
  GenerationOptions options = request.options;
  if (request.task == Task::kPrefill) {
    options.stop.clear();
    options.vote = options.n = options.best_of = 0;
    options.max_tokens = 1;
    options.thinking = Thinking::kKeep;  // the one token is not looked at
    options.cache = false;
  }
  if (request.task == Task::kChoose && options.vote == 0 && !Reasons(options)) {
    // The choices come before any sampling: without it, the request is the same for the memo.
    const GenerationOptions none;
    options.temperature = none.temperature;
    options.repeat_penalty = none.repeat_penalty;
  }
  ASSIGN_OR_RETURN(std::vector<ChatMessage> messages, MessagesOf(request, request.prompt));
  ASSIGN_OR_RETURN(Prompt prompt, Encode(messages, options, request.begun));
  if (options.on_overflow != OnOverflow::kError && !options.messages &&
      static_cast<int64_t>(prompt.tokens.size()) >= max_sequence_tokens()) {
    ASSIGN_OR_RETURN(prompt, Truncate(request, std::move(prompt)));
  }
  std::optional<int32_t> reasoning = ReasoningTokens(options, prompt);
  if (Reasons(options) && reasoning == 0) {  // there is no room: the model answers at once
    TextRequest at_once = request;
    at_once.options.thinking_tokens = 0;
    return PrepareChat(at_once);
  }
  std::vector<int32_t> borders, store;
  const bool prefills = request.task == Task::kPrefill;
  if (prefills || engine_->model().language_model().cache().recurrent()) {
    ASSIGN_OR_RETURN(borders, FindBorders(prompt.tokens, std::move(messages), options));
  }
  if (prefills) {
    // The prompt is that of a request which has them.
    options.constraint = {};
    options.thinking_tokens.reset();
    reasoning.reset();
    store = borders;
    // The last token is computed in any case.
    if (!request.prompt.empty()) {
      store.push_back(static_cast<int32_t>(prompt.tokens.size()) - 1);
    } else if (!borders.empty()) {
      prompt.tokens.resize(borders[0] + 1);
    }
  }
  RequestSpec spec{.prompt = std::move(prompt.tokens),
                   .text = std::move(prompt.text),
                   .template_end = std::move(prompt.template_end),
                   .thinking_marks = engine_->model().thinking_marks(),
                   .reasoning_tokens = reasoning,
                   .begun = std::move(prompt.begun),
                   .options = std::move(options),
                   .borders = std::move(borders),
                   .store = std::move(store),
                   .stream = request.stream,
                   .wants_first_choices = request.task == Task::kChoose,
                   .wants_probability = request.task == Task::kWeigh,
                   .wants_logprob = request.wants_logprob};
  ASSIGN_OR_RETURN(spec.closing_tokens,
                   Reasoning::CountClosing(engine_->model().tokenizer(), spec));
  return spec;
}

// As many tokens as options.thinking_tokens has, and there is room for; of that half stays for an
// answer which may need as much. nullopt: the options do not say.
std::optional<int32_t> LocalGenerator::ReasoningTokens(const GenerationOptions& options,
                                                       const Prompt& prompt) const {
  if (!options.thinking_tokens.has_value()) return std::nullopt;
  const auto given = static_cast<int64_t>(prompt.tokens.size() + prompt.begun.size());
  const int64_t left = std::max<int64_t>(max_sequence_tokens() - given - kMostClosingTokens, 0);
  const int64_t most = left - std::min(AnswerRoom(options), left / 2);
  return static_cast<int32_t>(std::min<int64_t>(*options.thinking_tokens, most));
}

// Where the text of the last message begins: what is before it is the same for all prompts.
absl::StatusOr<std::vector<int32_t>> LocalGenerator::FindBorders(
    absl::Span<const int32_t> tokens, std::vector<ChatMessage> messages,
    const GenerationOptions& options) const {
  TemplateValue& last = messages.back().content;
  const bool begins_so =
      last.Is(TemplateValue::Kind::kString) && absl::StartsWith(last.text().bytes(), "a");
  last = TemplateValue::Input(begins_so ? "b" : "a");
  ASSIGN_OR_RETURN(const Prompt other, Encode(messages, options));
  const auto parting =
      std::mismatch(tokens.begin(), tokens.end(), other.tokens.begin(), other.tokens.end());
  const int32_t common = static_cast<int32_t>(parting.first - tokens.begin());
  if (common < kLeastHeldPrefix || common == static_cast<int32_t>(tokens.size())) {
    return std::vector<int32_t>();
  }
  return std::vector<int32_t>{common};
}

absl::StatusOr<LocalGenerator::Prompt> LocalGenerator::Truncate(const TextRequest& request,
                                                                Prompt prompt) const {
  const int64_t context = max_sequence_tokens();
  const int64_t answer =
      std::clamp<int64_t>(AnswerRoom(request.options) + ReasoningRoom(request.options), 1,
                          std::max<int64_t>(context / 2, 1));
  const int64_t most = context - answer;
  auto with = [&](absl::string_view part) -> absl::StatusOr<Prompt> {
    ASSIGN_OR_RETURN(const std::vector<ChatMessage> messages, MessagesOf(request, part));
    return Encode(messages, request.options, request.begun);
  };
  auto excess = [&] { return static_cast<int64_t>(prompt.tokens.size()) - most; };
  if (excess() <= 0) return prompt;
  ASSIGN_OR_RETURN(const absl::string_view kept,
                   CutToFit(request.prompt, SideLeft(request.options.on_overflow), excess(),
                            engine_->model().tokenizer(),
                            [&](absl::string_view part) -> absl::StatusOr<int64_t> {
                              ASSIGN_OR_RETURN(prompt, with(part));
                              return excess();
                            }));
  ASSIGN_OR_RETURN(prompt, with(kept));
  if (excess() <= 0) return prompt;
  return absl::OutOfRangeError(absl::StrCat("the system prompt and the template alone have ",
                                            prompt.tokens.size(),
                                            " tokens; with room for the answer at most ", most,
                                            " of the context's ", context, " may be used"));
}

absl::StatusOr<LocalGenerator::Prompt> LocalGenerator::Encode(
    absl::Span<const ChatMessage> messages, const GenerationOptions& options,
    absl::string_view begun) const {
  ASSIGN_OR_RETURN(const RenderedChat rendered,
                   RenderChat(engine_->model().chat_template(), messages, options,
                              *engine_->model().thinking_marks()));
  Prompt prompt;
  const Tokenizer& tokenizer = engine_->model().tokenizer();
  if (rendered.adds_bos) prompt.tokens.push_back(tokenizer.vocabulary().bos);
  RETURN_IF_ERROR(tokenizer.Encode(rendered.pieces, &prompt.tokens, rendered.says_bos));
  std::vector<int32_t> first = AnswerTokens(tokenizer, begun);
  const std::string template_end = rendered.TemplateEnd();
  const bool reasons_first = Reasons(options) && IsConstrained(options) &&
                             engine_->model().thinking_marks()->FindBegun(template_end) != nullptr;
  if (begun.empty() || reasons_first) {
    prompt.template_end = template_end;
    prompt.begun = std::move(first);
  } else {
    prompt.tokens.insert(prompt.tokens.end(), first.begin(), first.end());
  }
  if (Memoizable(options)) prompt.text = TextForm(rendered, begun);
  return prompt;
}

absl::StatusOr<std::string> LocalGenerator::Render(const TextRequest& request) const {
  ASSIGN_OR_RETURN(const std::vector<ChatMessage> messages, MessagesOf(request, request.prompt));
  ASSIGN_OR_RETURN(const RenderedChat rendered,
                   RenderChat(engine_->model().chat_template(), messages, request.options,
                              *engine_->model().thinking_marks()));
  return rendered.Text();
}

absl::StatusOr<int64_t> LocalGenerator::CountTokens(const TextRequest& request) const {
  if (IsPlain(request)) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                     engine_->model().tokenizer().EncodePlain(PlainText(request)));
    return static_cast<int64_t>(tokens.size());
  }
  ASSIGN_OR_RETURN(const std::vector<ChatMessage> messages, MessagesOf(request, request.prompt));
  ASSIGN_OR_RETURN(const Prompt prompt, Encode(messages, request.options));
  return static_cast<int64_t>(prompt.tokens.size());
}

bool LocalGenerator::CanBeAnswer(const RequestSpec& spec, const RememberedAnswer& answer) const {
  return CanBeDrawn(spec, answer, [this](const RequestSpec& one, const RememberedAnswer& its) {
    return lm::CanBeAnswer(*engine_, one, its);
  });
}

}  // namespace lm
