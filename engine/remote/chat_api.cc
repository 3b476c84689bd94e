#include "engine/remote/chat_api.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

using Kind = AnswerConstraint::Kind;

constexpr int kTopLogprobs = 20;  // the most that these servers give
constexpr size_t kShown = 400;    // bytes of a server's words
constexpr size_t kShownAnswer = 200;

Json Object(std::string name, Json value) {
  Json object = Json::MakeObject();
  object.Add(std::move(name), std::move(value));
  return object;
}

// The body of a request: ours, and over it what `extra` has.
class Body {
 public:
  explicit Body(const Json& extra) : extra_(extra) {}
  void Add(std::string name, Json value) {
    if (!extra_.Has(name)) body_.Add(std::move(name), std::move(value));
  }
  std::string Dump() {
    for (const auto& [name, value] : extra_.members()) {
      if (!value.is_null()) body_.Add(name, value);
    }
    return body_.Dump();
  }

 private:
  const Json& extra_;
  Json body_ = Json::MakeObject();
};

std::string InGrammar(absl::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&quoted, "\\", absl::string_view(&c, 1));
    } else if (absl::ascii_iscntrl(c)) {
      absl::StrAppend(&quoted, "\\x", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    } else {
      quoted.push_back(c);
    }
  }
  quoted.push_back('"');
  return quoted;
}

std::string InRegex(absl::string_view text) {
  std::string escaped;
  for (char c : text) {
    if (absl::string_view(R"(\.^$|?*+()[]{}/-)").find(c) != absl::string_view::npos) {
      escaped.push_back('\\');
    }
    escaped.push_back(c);
  }
  return escaped;
}

template <typename Write>
std::string Alternatives(const Json& choices, absl::string_view separator, Write write) {
  return absl::StrJoin(choices.array(), separator, [&](std::string* out, const Json& choice) {
    out->append(write(choice.string()));
  });
}

Json SchemaFormat(Json schema) {
  Json named = Json::MakeObject();
  named.Add("name", "answer");
  named.Add("strict", true);
  named.Add("schema", std::move(schema));
  Json format = Json::MakeObject();
  format.Add("type", "json_schema");
  format.Add("json_schema", std::move(named));
  return format;
}

// {"answer": value}, for servers whose answers must be objects.
Json AnswerObject(Json value) {
  Json schema = Json::MakeObject();
  schema.Add("type", "object");
  schema.Add("properties", Object("answer", std::move(value)));
  schema.Add("required", Json::MakeArray().Append("answer"));
  schema.Add("additionalProperties", false);
  return schema;
}

// A schema as lm_extract means it: all properties are there, and may be null.
Json WithNulls(const Json& schema) {
  const Json* properties = schema.Find("properties");
  if (properties == nullptr || !properties->is_object()) return schema;
  Json nullable = Json::MakeObject(), required = Json::MakeArray();
  for (const auto& [name, value] : properties->members()) {
    Json either = Json::MakeArray();
    either.Append(value).Append(Object("type", "null"));
    nullable.Add(name, Object("anyOf", std::move(either)));
    required.Append(name);
  }
  Json changed = Json::MakeObject();
  for (const auto& [name, value] : schema.members()) {
    if (name != "properties" && name != "required") changed.Add(name, value);
  }
  changed.Add("properties", std::move(nullable));
  changed.Add("required", std::move(required));
  return changed;
}

// Whether the answer is the member `answer` of an object, or a text in JSON.
enum class Wrap { kNone, kObject, kString };
Wrap WrapOf(Kind kind, Dialect dialect) {
  if (kind != Kind::kChoices && kind != Kind::kRegex) return Wrap::kNone;
  if (dialect == Dialect::kOpenAi || dialect == Dialect::kOllama) return Wrap::kObject;
  const bool pattern = dialect == Dialect::kLlamaServer && kind == Kind::kRegex;
  return pattern ? Wrap::kString : Wrap::kNone;
}

absl::Status AddConstraint(const AnswerConstraint& constraint, Dialect dialect, Body* body) {
  const bool vllm = dialect == Dialect::kVllm, sglang = dialect == Dialect::kSglang;
  const bool llama = dialect == Dialect::kLlamaServer;
  const std::optional<Json> json = Json::Parse(constraint.text);
  auto structured = [&](std::string kind, Json value) {
    body->Add("structured_outputs", Object(std::move(kind), std::move(value)));
  };
  switch (constraint.kind) {
    case Kind::kNone:
      return absl::OkStatus();
    case Kind::kSchema:
    case Kind::kExtraction:
      if (!json.has_value()) return absl::InvalidArgumentError("schema is not JSON");
      body->Add("response_format",
                SchemaFormat(constraint.kind == Kind::kSchema ? *json : WithNulls(*json)));
      return absl::OkStatus();
    case Kind::kChoices:
      if (vllm) {
        structured("choice", *json);
      } else if (sglang) {
        body->Add("regex", absl::StrCat("(", Alternatives(*json, "|", &InRegex), ")"));
      } else if (llama) {
        body->Add("grammar", absl::StrCat("root ::= ", Alternatives(*json, " | ", &InGrammar)));
      } else {
        body->Add("response_format", SchemaFormat(AnswerObject(Object("enum", *json))));
      }
      return absl::OkStatus();
    case Kind::kRegex:
      if (vllm) {
        structured("regex", constraint.text);
      } else if (sglang) {
        body->Add("regex", constraint.text);
      } else {
        Json text = Json::MakeObject();
        text.Add("type", "string");
        text.Add("pattern", absl::StrCat("^(", constraint.text, ")$"));
        body->Add("response_format",
                  SchemaFormat(llama ? std::move(text) : AnswerObject(std::move(text))));
      }
      return absl::OkStatus();
    case Kind::kGrammar:
      if (vllm) {
        structured("grammar", constraint.text);
      } else if (sglang || llama) {
        body->Add(sglang ? "ebnf" : "grammar", constraint.text);
      } else {
        return absl::InvalidArgumentError(absl::StrCat("grammar: a server that is spoken to as ",
                                                       DialectName(dialect), " has no grammars"));
      }
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status AddSampling(const GenerationOptions& options, Dialect dialect, Body* body) {
  body->Add("temperature", options.temperature);
  if (options.temperature != 0) {
    body->Add("seed", options.seed);
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

std::optional<int64_t> Count(const Json* json) {
  if (json == nullptr || !json->is_integer() || json->number() < 0 || json->number() > 1e12) {
    return std::nullopt;
  }
  return json->integer();
}

const Json* FindPath(const Json& json, std::initializer_list<absl::string_view> names) {
  const Json* at = &json;
  for (absl::string_view name : names) {
    if (at != nullptr) at = at->Find(name);
  }
  return at;
}

std::string TextAt(const Json& json, absl::string_view name) {
  const Json* member = json.Find(name);
  return member != nullptr && member->is_string() ? member->string() : std::string();
}

absl::Status BadAnswer(absl::string_view what, absl::string_view got) {
  return absl::UnavailableError(
      absl::StrCat("the server sent ", what, ": ", Printable(got.substr(0, kShown))));
}

// Whole numbers without a fraction, as a constrained answer of ours has them.
Json Canonical(const Json& json) {
  if (json.is_array()) {
    Json array = Json::MakeArray();
    for (const Json& element : json.array()) array.Append(Canonical(element));
    return array;
  }
  if (json.is_object()) {
    Json object = Json::MakeObject();
    for (const auto& [name, value] : json.members()) object.Add(name, Canonical(value));
    return object;
  }
  if (!json.is_float()) return json;
  const double value = json.number();
  const bool whole = std::trunc(value) == value && std::abs(value) < 1e15;
  return whole ? Json(static_cast<int64_t>(value)) : json;
}

}  // namespace

absl::StatusOr<RemoteModel> ReadModelList(absl::string_view body, absl::string_view wanted) {
  const std::optional<Json> json = Json::Parse(body);
  const Json* list = json.has_value() ? json->Find("data") : nullptr;
  if (list == nullptr || !list->is_array()) return BadAnswer("no list of models", body);
  std::string known;
  for (const Json& entry : list->array()) {
    const std::string id = TextAt(entry, "id");
    absl::StrAppend(&known, known.empty() ? "" : ", ", "'", id, "'");
    if (!wanted.empty() && id != wanted) continue;
    RemoteModel model{.name = id};
    const std::string owner = TextAt(entry, "owned_by");
    if (owner == "vllm") model.dialect = Dialect::kVllm;
    if (owner == "sglang") model.dialect = Dialect::kSglang;
    if (owner == "llamacpp") model.dialect = Dialect::kLlamaServer;
    if (owner == "library") model.dialect = Dialect::kOllama;
    model.context_length = Count(entry.Find("max_model_len")).value_or(0);
    const Json* context = FindPath(entry, {"meta", "n_ctx"});
    if (model.context_length == 0) model.context_length = Count(context).value_or(0);
    return model;
  }
  return absl::NotFoundError(
      absl::StrCat("the server has no model '", wanted, "', but ", known.empty() ? "none" : known));
}

absl::StatusOr<std::string> ChatBody(const RequestSpec& spec, const RemoteModel& model,
                                     const RemoteOptions& options, Delivery delivery) {
  const GenerationOptions& wanted = spec.options;
  const std::optional<Json> messages = Json::Parse(spec.text);
  if (!messages.has_value()) return absl::InternalError("the messages are no JSON");
  Body body(options.extra);
  body.Add("model", model.name);
  body.Add("messages", *messages);
  const bool choices = wanted.constraint.kind == Kind::kChoices;
  if (spec.wants_first_choices) {
    body.Add("max_tokens", 1);
    body.Add("logprobs", true);
    body.Add("top_logprobs", kTopLogprobs);
  } else if (!choices) {
    body.Add(model.dialect == Dialect::kOpenAi && options.dialect == Dialect::kOpenAi
                 ? "max_completion_tokens"
                 : "max_tokens",
             wanted.max_tokens);
  }
  RETURN_IF_ERROR(AddSampling(wanted, model.dialect, &body));
  // The probabilities are those of all words; which of them are answers is seen to here.
  if (!spec.wants_first_choices) {
    RETURN_IF_ERROR(AddConstraint(wanted.constraint, model.dialect, &body));
  }
  if (delivery == Delivery::kStream) {
    body.Add("stream", true);
    body.Add("stream_options", Object("include_usage", true));
  }
  return body.Dump();
}

std::string EmbeddingBody(const RequestSpec& spec, const RemoteModel& model,
                          const RemoteOptions& options) {
  Body body(options.extra);
  body.Add("model", model.name);
  body.Add("input", spec.text);
  body.Add("encoding_format", "float");
  return body.Dump();
}

absl::Status ChatAnswer::Append(absl::string_view event) {
  if (event == "[DONE]") return absl::OkStatus();
  const std::optional<Json> json = Json::Parse(event);
  if (!json.has_value() || !json->is_object()) return BadAnswer("an event that is no JSON", event);
  return AppendJson(*json);
}

absl::Status ChatAnswer::AppendJson(const Json& event) {
  const Json* error = event.Find("error");
  if (error != nullptr && !error->is_null()) return absl::UnavailableError(ErrorText(event.Dump()));
  if (const Json* usage = event.Find("usage")) {
    if (auto count = Count(usage->Find("prompt_tokens"))) tokens_in = count;
    if (auto count = Count(usage->Find("completion_tokens"))) tokens_out = count;
    const Json* cached = FindPath(*usage, {"prompt_tokens_details", "cached_tokens"});
    if (auto count = Count(cached)) tokens_cached = count;
  }
  const Json* choices = event.Find("choices");
  if (choices == nullptr || !choices->is_array() || choices->size() == 0) return absl::OkStatus();
  const Json& choice = choices->array()[0];
  const Json* delta = choice.Find("delta");
  if (delta == nullptr) delta = choice.Find("message");
  if (delta != nullptr) {
    const std::string piece = TextAt(*delta, "content");
    pieces += !piece.empty();
    text += piece;
    reasoning += TextAt(*delta, "reasoning_content") + TextAt(*delta, "reasoning");
  }
  const Json* logprobs = FindPath(choice, {"logprobs", "content"});
  if (first.empty() && logprobs != nullptr && logprobs->is_array() && logprobs->size() > 0) {
    const Json* top = logprobs->array()[0].Find("top_logprobs");
    for (const Json& one : top != nullptr && top->is_array() ? top->array() : Json::Array()) {
      const Json* logprob = one.Find("logprob");
      if (logprob == nullptr || !logprob->is_number()) continue;
      first.push_back({TextAt(one, "token"), static_cast<float>(logprob->number())});
    }
  }
  const std::string reason = TextAt(choice, "finish_reason");
  if (!reason.empty()) finish = reason;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> ReadEmbedding(absl::string_view body) {
  const std::optional<Json> json = Json::Parse(body);
  const Json* data = json.has_value() ? json->Find("data") : nullptr;
  const Json* numbers = data != nullptr && data->is_array() && data->size() > 0
                            ? data->array()[0].Find("embedding")
                            : nullptr;
  if (numbers == nullptr || !numbers->is_array()) return BadAnswer("no embedding", body);
  std::vector<float> embedding;
  for (const Json& number : numbers->array()) {
    if (!number.is_number()) return BadAnswer("no embedding", body);
    embedding.push_back(static_cast<float>(number.number()));
  }
  return embedding;
}

std::string ErrorText(absl::string_view body) {
  const std::optional<Json> json = Json::Parse(body);
  std::string text;
  if (json.has_value() && json->is_object()) {
    const Json* error = json->Find("error");
    if (error != nullptr && error->is_string()) text = error->string();
    if (error != nullptr && error->is_object()) text = TextAt(*error, "message");
    for (const char* name : {"message", "detail"}) {
      if (text.empty()) text = TextAt(*json, name);
    }
  }
  if (text.empty()) text = std::string(body);
  return Printable(absl::StripAsciiWhitespace(absl::string_view(text).substr(0, kShown)));
}

bool SaysTooLong(absl::string_view error) {
  const std::string text = absl::AsciiStrToLower(error);
  return absl::StrContains(text, "context length") || absl::StrContains(text, "context size") ||
         absl::StrContains(text, "context_length") || absl::StrContains(text, "maximum context") ||
         absl::StrContains(text, "too long");
}

absl::Status ProveAnswer(const AnswerConstraint& constraint, const Grammar& grammar,
                         Dialect dialect, std::string* text) {
  std::optional<std::string> meant = UnwrapAnswer(constraint, dialect, *text);
  if (meant.has_value() && grammar.Matches(*meant).value_or(false)) {
    *text = *std::move(meant);
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat("the server's answer does not fit ",
                                                    ConstraintName(constraint.kind), ": ",
                                                    Printable(text->substr(0, kShownAnswer))));
}

std::optional<std::string> UnwrapAnswer(const AnswerConstraint& constraint, Dialect dialect,
                                        std::string text) {
  const Wrap wrap = WrapOf(constraint.kind, dialect);
  const bool is_json = constraint.kind == Kind::kSchema || constraint.kind == Kind::kExtraction;
  if (wrap == Wrap::kNone && !is_json) return text;
  const std::optional<Json> json = Json::Parse(absl::StripAsciiWhitespace(text));
  if (!json.has_value()) return std::nullopt;
  if (is_json) return Canonical(*json).Dump();
  const Json* answer = wrap == Wrap::kObject ? json->Find("answer") : &*json;
  if (answer == nullptr || !answer->is_string()) return std::nullopt;
  return answer->string();
}

}  // namespace lm
