#include "engine/remote/chat_api.h"

#include <algorithm>
#include <cfloat>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/known_json.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/remote/chat_constraint.h"
#include "engine/remote/request_body.h"

namespace lm {
namespace {

using Kind = AnswerConstraint::Kind;

constexpr int kTopLogprobs = 20;       // the most that these servers give
constexpr double kMostLogprob = 0.01;  // which rounding makes of 0
constexpr size_t kShown = 400;         // bytes of a server's words

absl::Status AddSampling(const GenerationOptions& options, Dialect dialect, bool is_openais,
                         const LeftOut& left_out, RequestBody* body) {
  // OpenAI's models that reason refuse every temperature.
  const bool says = options.says_temperature || options.temperature != 0;
  if (says || !is_openais) body->Add("temperature", options.temperature);
  if (options.temperature != 0) {
    if (!left_out.seed) body->Add("seed", options.seed);
    if (options.top_p != 1) body->Add("top_p", options.top_p);
  }
  if (!options.stop.empty()) {
    Json stop = Json::MakeArray();
    for (const std::string& one : options.stop) stop.Append(one);
    body->Add("stop", std::move(stop));
  }
  if (!options.logit_bias.empty()) {
    Json bias = Json::MakeObject();
    for (const auto& [token, value] : options.logit_bias) bias.Add(absl::StrCat(token), value);
    body->Add("logit_bias", std::move(bias));
  }
  const bool plain = dialect == Dialect::kOpenAi || dialect == Dialect::kOllama;
  auto refuse = [&](absl::string_view name) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": a server that is spoken to as ",
                                                   DialectName(dialect), " does not know it"));
  };
  if (options.temperature != 0 && options.top_k != 0) {
    if (plain) return refuse("top_k");
    body->Add("top_k", options.top_k);
  }
  if (options.temperature != 0 && options.min_p != 0) {
    if (plain) return refuse("min_p");
    body->Add("min_p", options.min_p);
  }
  if (options.repeat_penalty != 1) {
    if (plain) return refuse("repeat_penalty");
    body->Add(dialect == Dialect::kLlamaServer ? "repeat_penalty" : "repetition_penalty",
              options.repeat_penalty);
  }
  if (!options.template_args.empty()) {
    const std::optional<Json> args = Json::Parse(options.template_args);
    if (plain || !args.has_value()) return refuse("template_args");
    body->Add("chat_template_kwargs", *args);
  }
  return absl::OkStatus();
}

const Json* FindPath(const Json& json, std::initializer_list<absl::string_view> names) {
  const Json* at = &json;
  for (absl::string_view name : names) {
    if (at != nullptr) at = at->Find(name);
  }
  return at;
}

absl::Status BadAnswer(absl::string_view what, absl::string_view got, const Secrets& secrets) {
  return absl::UnavailableError(
      absl::StrCat("the server sent ", what, ": ", ShownWords(got, secrets)));
}

// Adds a message's content: a text, null, or parts, of which some are thoughts. False where it is
// nothing of that kind.
bool AddContent(const Json& content, std::string* text, std::string* reasoning) {
  if (content.is_string()) text->append(content.string());
  if (!content.is_array()) return content.is_string() || content.is_null();
  for (const Json& part : content.array()) {
    const std::string type = part.TextAt("type");
    const Json* value = type == "text" || type == "thinking" ? part.Find(type) : nullptr;
    if (value == nullptr) return false;
    if (!AddContent(*value, type == "text" ? text : reasoning, reasoning)) return false;
  }
  return true;
}

// That of the index, which is the first that comes: where the server was told to give several
// (`extra`), their pieces come in any order, and some servers number their only one 1.
const Json* ReadChoice(const Json& choices, std::optional<int64_t>* index) {
  if (!choices.is_array()) return nullptr;
  for (const Json& choice : choices.array()) {
    const std::optional<int64_t> its = ReadCount(choice.Find("index"));
    if (!index->has_value()) *index = its;
    if (!its.has_value() || its == *index) return &choice;
  }
  return nullptr;
}

// The word, and not as a part of a name ("seed-oss").
bool SaysWord(absl::string_view text, absl::string_view word) {
  auto in_name = [text](size_t i) {
    return i < text.size() && (absl::ascii_isalnum(static_cast<unsigned char>(text[i])) ||
                               text[i] == '-' || text[i] == '_');
  };
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    if (!(at > 0 && in_name(at - 1)) && !in_name(at + word.size())) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<RemoteModel> ReadModelList(absl::string_view body, absl::string_view wanted,
                                          const Secrets& secrets) {
  const std::optional<Json> json = Json::Parse(body);
  const Json* list = json.has_value() && json->is_object() ? json->Find("data") : nullptr;
  if (json.has_value() && json->is_array()) list = &*json;
  if (list == nullptr || !list->is_array()) return BadAnswer("no list of models", body, secrets);
  std::string known;
  for (const Json& entry : list->array()) {
    const std::string id = entry.TextAt("id");
    absl::StrAppend(&known, known.empty() ? "" : ", ", "'", id, "'");
    if (!wanted.empty() && id != wanted && id != absl::StrCat(wanted, ":latest") &&
        id != absl::StrCat("models/", wanted)) {
      continue;
    }
    RemoteModel model{.name = id};
    const std::string owner = entry.TextAt("owned_by");
    if (owner == "vllm") model.dialect = Dialect::kVllm;
    if (owner == "sglang") model.dialect = Dialect::kSglang;
    if (owner == "llamacpp") model.dialect = Dialect::kLlamaServer;
    if (owner == "library") model.dialect = Dialect::kOllama;
    if (owner == "tensorrt_llm") model.dialect = Dialect::kTrtllm;
    model.context_length = ReadCount(entry.Find("max_model_len")).value_or(0);
    const Json* context = FindPath(entry, {"meta", "n_ctx"});
    if (model.context_length == 0) model.context_length = ReadCount(context).value_or(0);
    return model;
  }
  return absl::NotFoundError(absl::StrCat("the server has no model '", wanted, "', but ",
                                          known.empty() ? "none" : secrets.Without(known)));
}

absl::StatusOr<std::string> ChatBody(const RequestSpec& spec, const RemoteModel& model,
                                     const RemoteOptions& options, Delivery delivery,
                                     const LeftOut& left_out) {
  const GenerationOptions& wanted = spec.options;
  ASSIGN_OR_RETURN(const Json messages, ReadKnownJson(spec.text));
  RequestBody body(options.extra);
  body.Add("model", model.name);
  body.Add("messages", messages);
  const bool choices = wanted.constraint.kind == Kind::kChoices;
  const bool is_openais = model.dialect == Dialect::kOpenAi &&
                          (model.is_openais || options.dialect == Dialect::kOpenAi);
  const char* const most = is_openais ? "max_completion_tokens" : "max_tokens";
  if (spec.wants_first_choices) {
    body.Add(most, 1);
    body.Add("logprobs", true);
    body.Add("top_logprobs", kTopLogprobs);
  } else if (!choices) {
    body.Add(most, wanted.max_tokens);
  }
  RETURN_IF_ERROR(AddSampling(wanted, model.dialect, is_openais, left_out, &body));
  // The probabilities are those of all words; which of them are answers is seen to here.
  if (!spec.wants_first_choices) {
    ASSIGN_OR_RETURN(const Json::Object members,
                     ConstraintMembers(wanted.constraint, model.dialect));
    for (const auto& [name, value] : members) body.Add(name, value);
  }
  if (delivery == Delivery::kStream) {
    body.Add("stream", true);
    if (!left_out.stream_options) {
      body.Add("stream_options", Json::MakeObject().Add("include_usage", true));
    }
  }
  return body.Dump();
}

absl::Status ChatAnswer::Append(absl::string_view event, const Secrets& secrets) {
  if (event == "[DONE]") {
    if (finish.empty() && !(text.empty() && reasoning.empty())) finish = "stop";
    return absl::OkStatus();
  }
  std::optional<Json> json = Json::Parse(event);
  if (!json.has_value()) json = Json::Parse(split.Join(event));
  if (!json.has_value() || !json->is_object())
    return BadAnswer("an event that is no JSON", event, secrets);
  return AppendJson(*json, secrets);
}

absl::Status ChatAnswer::AppendJson(const Json& event, const Secrets& secrets) {
  const Json* error = event.Find("error");
  if (error != nullptr && !error->is_null())
    return absl::UnavailableError(ErrorText(event.Dump(), secrets));
  if (const Json* usage = event.Find("usage")) {
    if (auto count = ReadCount(usage->Find("prompt_tokens"))) tokens_in = count;
    if (auto count = ReadCount(usage->Find("completion_tokens"))) tokens_out = count;
    const Json* cached = FindPath(*usage, {"prompt_tokens_details", "cached_tokens"});
    if (auto count = ReadCount(cached)) tokens_cached = count;
  }
  const Json* choices = event.Find("choices");
  if (choices == nullptr && event.Find("usage") == nullptr) stray = event.Dump();
  const Json* found = choices != nullptr ? ReadChoice(*choices, &index) : nullptr;
  if (found == nullptr) return absl::OkStatus();
  const Json& choice = *found;
  const Json* delta = choice.Find("delta");
  if (delta == nullptr || !delta->is_object()) delta = choice.Find("message");
  if (delta != nullptr && delta->is_object()) {
    has_message = true;
    const size_t before = text.size() + reasoning.size();
    const Json* content = delta->Find("content");
    if (content != nullptr && !AddContent(*content, &text, &reasoning)) {
      return BadAnswer("content that is neither a text nor a list of texts", content->Dump(),
                       secrets);
    }
    // Some servers send both, with the same text.
    const std::string thought = delta->TextAt("reasoning");
    reasoning += thought.empty() ? delta->TextAt("reasoning_content") : thought;
    pieces += text.size() + reasoning.size() > before;
    refusal += delta->TextAt("refusal");
  } else if (!has_message && odd.empty()) {
    odd = choice.Dump();
  }
  const Json* logprobs = FindPath(choice, {"logprobs", "content"});
  if (first.empty() && logprobs != nullptr && logprobs->is_array() && logprobs->size() > 0) {
    const Json* top = logprobs->array()[0].Find("top_logprobs");
    for (const Json& one : top != nullptr && top->is_array() ? top->array() : Json::Array()) {
      const Json* logprob = one.Find("logprob");
      if (logprob == nullptr || !logprob->is_number()) continue;
      if (!(logprob->number() < kMostLogprob)) return BadAnswer("no logprob", one.Dump(), secrets);
      const double value = std::clamp<double>(logprob->number(), -FLT_MAX, 0);
      first.push_back({one.TextAt("token"), static_cast<float>(value)});
    }
  }
  const std::string reason = choice.TextAt("finish_reason");
  if (!reason.empty()) finish = reason;
  return absl::OkStatus();
}

std::optional<int64_t> ReadCount(const Json* json) {
  if (json == nullptr || !json->is_integer() || json->number() < 0 || json->number() > 1e12) {
    return std::nullopt;
  }
  return json->integer();
}

std::string ShownWords(absl::string_view words, const Secrets& secrets) {
  return Printable(absl::StripAsciiWhitespace(secrets.Without(words, kShown)));
}

std::string ErrorText(absl::string_view body, const Secrets& secrets) {
  const std::optional<Json> json = Json::Parse(body);
  std::string text;
  if (json.has_value() && json->is_object()) {
    const Json* error = json->Find("error");
    if (error != nullptr && error->is_string()) text = error->string();
    if (error != nullptr && error->is_object()) text = error->TextAt("message");
    for (const char* name : {"message", "detail"}) {
      if (text.empty()) text = json->TextAt(name);
    }
  }
  if (text.empty()) text = std::string(body);
  return ShownWords(text, secrets);
}

LeftOut WithRefused(LeftOut left_out, int code, absl::string_view words) {
  if (code != 400 && code != 422) return left_out;
  const std::string text = absl::AsciiStrToLower(words);
  const bool refuses =
      absl::StrContains(text, "not permitted") || absl::StrContains(text, "not allowed") ||
      absl::StrContains(text, "not support") || absl::StrContains(text, "unsupported") ||
      absl::StrContains(text, "unexpected") || absl::StrContains(text, "unknown") ||
      absl::StrContains(text, "unrecognized");
  if (!refuses) return left_out;
  left_out.seed |= SaysWord(text, "seed");
  left_out.stream_options |= SaysWord(text, "stream_options");
  return left_out;
}

bool SaysUnpaid(absl::string_view body) {
  const std::optional<Json> json = Json::Parse(body);
  const Json* error = json.has_value() ? json->Find("error") : nullptr;
  if (error == nullptr || !error->is_object()) return false;
  for (const char* member : {"code", "type"}) {
    const std::string said = error->TextAt(member);
    for (absl::string_view unpaid :
         {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}) {
      if (said == unpaid) return true;
    }
  }
  return false;
}

// 403 may be a gateway's word about what one prompt says.
Trouble RejectionTrouble(int code, absl::string_view body) {
  if (code == 401 || code == 402 || SaysUnpaid(body)) return Trouble::kAccount;
  const bool refuses = code == 403 || code == 404 || code / 100 == 3;
  return refuses ? Trouble::kRefusal : Trouble::kNone;
}

bool SaysTooLong(int code, absl::string_view error) {
  const std::string text = absl::AsciiStrToLower(error);
  auto says = [&](absl::string_view words) { return absl::StrContains(text, words); };
  // llama-server's words about what it is to embed. Else these are failures, and time is meant.
  if (code >= 500 || code == 408) return says("too large to process");
  return says("context length") || says("context size") || says("context_length") ||
         says("maximum context") || says("too long") || says("max_seq_len") ||
         says("max_num_tokens");
}

}  // namespace lm
