#include "engine/remote/chat_constraint.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/remote/member_order.h"
#include "engine/runtime/answer_form.h"
#include "engine/runtime/extraction_schema.h"

namespace lm {
namespace {

using Kind = AnswerConstraint::Kind;

constexpr size_t kShownOfAnswer = 200;  // bytes of an answer

Json One(std::string name, Json value) {
  Json object = Json::MakeObject();
  object.Add(std::move(name), std::move(value));
  return object;
}

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

// Whether a schema, or a part of one, is of those that OpenAI's servers keep to: with closed
// objects, whose members must all be there, and none but these keywords.
// (https://platform.openai.com/docs/guides/structured-outputs#supported-schemas)
bool MayBeStrict(const Json& schema) {
  constexpr absl::string_view kPlain[] = {"type",       "required",
                                          "enum",       "const",
                                          "title",      "description",
                                          "pattern",    "format",
                                          "minimum",    "exclusiveMinimum",
                                          "maximum",    "exclusiveMaximum",
                                          "multipleOf", "minItems",
                                          "maxItems",   "$ref",
                                          "properties", "additionalProperties",
                                          "$defs",      "definitions"};
  if (!schema.is_object()) return false;
  for (const auto& [name, value] : schema.members()) {
    if (name == "items" && MayBeStrict(value)) continue;
    if (name == "anyOf" && value.is_array() &&
        std::all_of(value.array().begin(), value.array().end(), &MayBeStrict)) {
      continue;
    }
    if (std::find(std::begin(kPlain), std::end(kPlain), name) == std::end(kPlain)) return false;
  }
  if (!schema.Has("type") && !schema.Has("anyOf") && !schema.Has("$ref")) return false;
  for (absl::string_view name : {"properties", "$defs", "definitions"}) {
    const Json* parts = schema.Find(name);
    if (parts == nullptr) continue;
    if (!parts->is_object()) return false;
    for (const auto& [_, part] : parts->members()) {
      if (!MayBeStrict(part)) return false;
    }
  }
  const Json* type = schema.Find("type");
  const Json* properties = schema.Find("properties");
  const bool is_object =
      properties != nullptr || (type != nullptr && absl::StrContains(type->Dump(), "\"object\""));
  if (!is_object) return true;
  const Json* others = schema.Find("additionalProperties");
  if (others == nullptr || !others->is_boolean() || others->boolean()) return false;
  const Json* required = schema.Find("required");
  for (const auto& [name, _] : properties != nullptr ? properties->members() : Json::Object()) {
    const bool is_required =
        required != nullptr && required->is_array() &&
        std::any_of(required->array().begin(), required->array().end(),
                    [&](const Json& one) { return one.is_string() && one.string() == name; });
    if (!is_required) return false;
  }
  return true;
}

// An answer is proven here whether a server is strict or not; OpenAI's refuse to be so with other
// schemas than theirs.
Json SchemaFormat(Json schema, Dialect dialect) {
  const bool is_object = schema.TextAt("type") == "object" && !schema.Has("anyOf");
  Json named = Json::MakeObject();
  named.Add("name", "answer");
  named.Add("strict", dialect != Dialect::kOpenAi || (is_object && MayBeStrict(schema)));
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
  schema.Add("properties", One("answer", std::move(value)));
  schema.Add("required", Json::MakeArray().Append("answer"));
  schema.Add("additionalProperties", false);
  return schema;
}

// Whether the answer is the member `answer` of an object, or a text in JSON.
enum class Wrap { kNone, kObject, kString };
Wrap WrapOf(Kind kind, Dialect dialect) {
  if (kind != Kind::kChoices && kind != Kind::kRegex) return Wrap::kNone;
  if (dialect == Dialect::kOpenAi || dialect == Dialect::kOllama) return Wrap::kObject;
  const bool pattern = dialect == Dialect::kLlamaServer && kind == Kind::kRegex;
  return pattern ? Wrap::kString : Wrap::kNone;
}

// A constraint that is a grammar of characters, where the server has those.
absl::StatusOr<Json::Object> Textual(const AnswerConstraint& constraint, const Json* choices,
                                     Dialect dialect) {
  const bool is_grammar = constraint.kind == Kind::kGrammar;
  const std::string pattern = choices == nullptr
                                  ? constraint.text
                                  : absl::StrCat("(", Alternatives(*choices, "|", &InRegex), ")");
  auto format = [](const char* kind, const std::string& text) {
    Json format = Json::MakeObject();
    format.Add("type", kind);
    format.Add(kind, text);
    return Json::Object{{"response_format", std::move(format)}};
  };
  switch (dialect) {
    case Dialect::kVllm:
      return Json::Object{{"structured_outputs",
                           choices != nullptr ? One("choice", *choices)
                                              : One(is_grammar ? "grammar" : "regex", pattern)}};
    case Dialect::kSglang:
      return Json::Object{{is_grammar ? "ebnf" : "regex", pattern}};
    case Dialect::kTrtllm:
      return format(is_grammar ? "ebnf" : "regex", pattern);
    case Dialect::kLlamaServer:
      if (is_grammar) return Json::Object{{"grammar", pattern}};
      if (choices == nullptr) break;
      return Json::Object{
          {"grammar", absl::StrCat("root ::= ", Alternatives(*choices, " | ", &InGrammar))}};
    default:
      break;
  }
  if (is_grammar) {
    return absl::InvalidArgumentError(absl::StrCat("grammar: a server that is spoken to as ",
                                                   DialectName(dialect), " has no grammars"));
  }
  // A schema says it.
  Json value = Json::MakeObject();
  value.Add("type", "string");
  if (choices != nullptr) {
    value.Add("enum", *choices);
  } else {
    value.Add("pattern", absl::StrCat("^(", constraint.text, ")$"));
  }
  const bool bare = dialect == Dialect::kLlamaServer;
  return Json::Object{
      {"response_format",
       SchemaFormat(bare ? std::move(value) : AnswerObject(std::move(value)), dialect)}};
}

}  // namespace

absl::StatusOr<Json::Object> ConstraintMembers(const AnswerConstraint& constraint,
                                               Dialect dialect) {
  if (constraint.kind == Kind::kNone) return Json::Object();
  if (constraint.kind == Kind::kRegex || constraint.kind == Kind::kGrammar) {
    return Textual(constraint, nullptr, dialect);
  }
  const std::optional<Json> json = Json::Parse(constraint.text);
  if (constraint.kind == Kind::kChoices) {
    if (json.has_value() && json->is_array()) return Textual(constraint, &*json, dialect);
    return absl::InvalidArgumentError("choices is no JSON array");
  }
  if (!json.has_value()) return absl::InvalidArgumentError("schema is not JSON");
  Json schema = *json;
  if (constraint.kind == Kind::kExtraction) {
    ASSIGN_OR_RETURN(schema, ExtractionSchema(constraint));
  }
  if (dialect != Dialect::kTrtllm) {
    return Json::Object{{"response_format", SchemaFormat(std::move(schema), dialect)}};
  }
  Json format = One("type", "json");
  format.Add("schema", std::move(schema));
  return Json::Object{{"response_format", std::move(format)}};
}

absl::Status ProveAnswer(const AnswerConstraint& constraint, const Grammar& grammar,
                         Dialect dialect, std::string* text) {
  std::optional<std::string> meant = UnwrapAnswer(constraint, dialect, *text);
  // Not everybody who answers wraps what the dialect wraps: a batch file goes anywhere.
  if (!meant.has_value() && WrapOf(constraint.kind, dialect) != Wrap::kNone) meant = *text;
  auto fits = [&] { return meant.has_value() && IsAnswer(constraint, grammar, *meant); };
  bool good = fits();
  // Who was told nothing of the choices ends his answer with a newline, if he gives one of them.
  if (!good && meant.has_value() && constraint.kind == Kind::kChoices) {
    meant = std::string(absl::StripAsciiWhitespace(*meant));
    good = fits();
  }
  if (!good && meant.has_value() && IsJson(constraint.kind)) {
    const std::optional<Json> json = Json::Parse(*meant);
    auto fits_as = [&](const Json& value) {
      std::string before = std::exchange(*meant, CanonicalJson(value));
      return *meant != before && fits();
    };
    good = json.has_value() && (fits_as(InMemberOrder(*json, constraint.text)) ||
                                (constraint.kind == Kind::kExtraction &&
                                 fits_as(WithNullsInMemberOrder(*json, constraint.text))));
  }
  if (good) {
    *text = *std::move(meant);
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat("the server's answer does not fit ",
                                                    ConstraintName(constraint.kind), ": ",
                                                    Printable(text->substr(0, kShownOfAnswer))));
}

std::optional<std::string> UnwrapAnswer(const AnswerConstraint& constraint, Dialect dialect,
                                        std::string text) {
  const Wrap wrap = WrapOf(constraint.kind, dialect);
  const bool is_json = IsJson(constraint.kind);
  if (wrap == Wrap::kNone && !is_json) return text;
  const std::optional<Json> json = Json::Parse(absl::StripAsciiWhitespace(text));
  if (!json.has_value()) return std::nullopt;
  if (is_json) return CanonicalJson(*json);
  const Json* answer = wrap == Wrap::kObject ? json->Find("answer") : &*json;
  if (answer == nullptr || !answer->is_string()) return std::nullopt;
  return answer->string();
}

}  // namespace lm
