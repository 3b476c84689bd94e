// The JSON form of GenerationOptions. One table maps each key to the function that takes its value.
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/edit_distance.h"
#include "engine/base/json.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/grammar.h"
#include "engine/model/adapter_scale.h"
#include "engine/runtime/generation_options.h"
#include "engine/text/template/json_value.h"

namespace lm {
namespace {

// Untrusted text as a message shows it: short, one line, printable.
std::string Shown(absl::string_view text) {
  constexpr size_t kMostBytes = 60;
  std::string shown = Printable(text.substr(0, kMostBytes));
  return text.size() > kMostBytes ? absl::StrCat(shown, "...") : shown;
}

std::string Described(const Json& value) {
  if (value.is_string()) return absl::StrCat("the string '", Shown(value.string()), "'");
  if (value.is_array()) return "an array";
  return value.is_object() ? "an object" : value.Dump();
}

absl::Status WrongType(absl::string_view name, absl::string_view wanted, const Json& value) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must be ", wanted, ", got ", Described(value)));
}

absl::Status ToString(absl::string_view name, const Json& value, std::string* out) {
  if (!value.is_string()) return WrongType(name, "a string", value);
  *out = value.string();
  return absl::OkStatus();
}

absl::Status ToBool(absl::string_view name, const Json& value, bool* out) {
  if (!value.is_boolean()) return WrongType(name, "true or false", value);
  *out = value.boolean();
  return absl::OkStatus();
}

absl::Status ToDouble(absl::string_view name, const Json& value, double* out) {
  if (!value.is_number()) return WrongType(name, "a number", value);
  *out = value.number();
  return absl::OkStatus();
}

// None of these options may be below 0; `most` is what an error says of a number beyond the type.
template <typename Integer>
absl::Status ToInteger(absl::string_view name, const Json& value, Integer* out,
                       Integer most = std::numeric_limits<Integer>::max()) {
  if (!value.is_integer()) return WrongType(name, "an integer", value);
  constexpr Integer kLeast = std::numeric_limits<Integer>::min();
  constexpr Integer kMost = std::numeric_limits<Integer>::max();
  // JSON integers arrive as uint64 where they are not negative, else as int64.
  const bool fits = value.is_unsigned() ? value.unsigned_integer() <= static_cast<uint64_t>(kMost)
                                        : std::is_signed_v<Integer> &&
                                              value.integer() >= static_cast<int64_t>(kLeast);
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " must be between 0 and ", most, ", got ", value.Dump()));
  }
  *out = static_cast<Integer>(value.is_unsigned() ? value.unsigned_integer()
                                                  : static_cast<uint64_t>(value.integer()));
  return absl::OkStatus();
}

template <typename Enum>
absl::Status ToEnum(absl::string_view name, const Json& value,
                    std::initializer_list<std::pair<absl::string_view, Enum>> choices, Enum* out) {
  std::string wanted;
  for (const auto& [word, meaning] : choices) {
    if (value.is_string() && value.string() == word) {
      *out = meaning;
      return absl::OkStatus();
    }
    absl::StrAppend(&wanted, wanted.empty() ? "'" : " or '", word, "'");
  }
  return WrongType(name, wanted, value);
}

absl::Status ToStopStrings(absl::string_view name, const Json& value,
                           std::vector<std::string>* out) {
  out->clear();
  if (value.is_string()) {
    out->push_back(value.string());
    return absl::OkStatus();
  }
  if (!value.is_array()) return WrongType(name, "a string or an array of strings", value);
  for (const Json& element : value.array()) {
    RETURN_IF_ERROR(ToString("each element of stop", element, &out->emplace_back()));
  }
  return absl::OkStatus();
}

absl::Status ToLogitBias(absl::string_view name, const Json& value,
                         std::vector<std::pair<int32_t, double>>* out) {
  if (!value.is_object()) return WrongType(name, "an object from token ids to numbers", value);
  out->clear();
  std::set<int32_t> tokens;
  for (const auto& [key, bias] : value.members()) {
    int32_t token;
    const bool digits = !key.empty() && std::all_of(key.begin(), key.end(),
                                                    [](char c) { return c >= '0' && c <= '9'; });
    if (!digits || !absl::SimpleAtoi(key, &token)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a key of logit_bias must be a token id, got '", Shown(key), "'"));
    }
    if (!tokens.insert(token).second) {
      return absl::InvalidArgumentError(absl::StrCat("logit_bias names token ", token, " twice"));
    }
    RETURN_IF_ERROR(ToDouble(absl::StrCat("logit_bias of token ", token), bias,
                             &out->emplace_back(token, 0).second));
  }
  return absl::OkStatus();
}

absl::Status ToExamples(absl::string_view name, const Json& value, Examples* out) {
  constexpr absl::string_view kWanted =
      "an array of objects {\"prompt\": ..., \"answer\": ...}, or the name of a set of lm_examples";
  if (value.is_string() && !value.string().empty()) {
    *out = Examples::OfSet(value.string());
    return absl::OkStatus();
  }
  if (!value.is_array()) return WrongType(name, kWanted, value);
  std::vector<Example> examples;
  for (const Json& element : value.array()) {
    const std::string its = absl::StrCat(name, "[", examples.size(), "]");
    if (!element.is_object()) return WrongType(its, "an object with prompt and answer", element);
    Example& example = examples.emplace_back();
    for (const auto& [key, text] :
         {std::pair("prompt", &example.prompt), std::pair("answer", &example.answer)}) {
      const Json* const given = element.Find(key);
      if (given == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat(its, " has no ", key, "; it must be {\"prompt\": ..., \"answer\": ...}"));
      }
      RETURN_IF_ERROR(ToString(absl::StrCat(its, ".", key), *given, text));
    }
    for (const auto& [key, text] : element.members()) {
      if (key == "prompt" || key == "answer") continue;
      return absl::InvalidArgumentError(absl::StrCat("unknown key '", Shown(key), "' of ", its,
                                                     " (prompt and answer are known)"));
    }
  }
  *out = Examples(std::move(examples));
  return absl::OkStatus();
}

absl::Status ToAdapters(absl::string_view name, const Json& value,
                        std::optional<std::vector<AdapterChoice>>* out) {
  constexpr absl::string_view kWanted = "an array of objects such as {\"name\": \"tone\"}";
  if (!value.is_array()) return WrongType(name, kWanted, value);
  std::vector<AdapterChoice> choices;
  for (const Json& element : value.array()) {
    if (!element.is_object()) return WrongType(name, kWanted, value);
    AdapterChoice choice;
    for (const auto& [key, member] : element.members()) {
      if (key == "name") {
        RETURN_IF_ERROR(ToString("name of lora", member, &choice.name));
      } else if (key == "scale") {
        ASSIGN_OR_RETURN(choice.scale, ReadAdapterScale(member));
      } else {
        return absl::InvalidArgumentError(
            absl::StrCat("unknown key '", Shown(key), "' of lora (name and scale are known)"));
      }
    }
    if (choice.name.empty()) {
      return absl::InvalidArgumentError("each element of lora must have a name");
    }
    const bool twice = std::any_of(choices.begin(), choices.end(),
                                   [&](const auto& c) { return c.name == choice.name; });
    if (twice) {
      return absl::InvalidArgumentError(
          absl::StrCat("lora names '", Shown(choice.name), "' twice"));
    }
    choices.push_back(std::move(choice));
  }
  *out = std::move(choices);
  return absl::OkStatus();
}

absl::Status ToTemplateArgs(absl::string_view name, const Json& value, std::string* out) {
  if (!value.is_object()) return WrongType(name, "an object", value);
  std::string text = value.Dump();
  if (absl::Status status = ParseJsonValue(text).status(); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", status.message()));
  }
  *out = std::move(text);
  return absl::OkStatus();
}

using Options = GenerationOptions;

absl::Status SetConstraint(AnswerConstraint::Kind kind, std::string text, Options* options) {
  options->constraint.kind = kind;
  options->constraint.text = std::move(text);
  return absl::OkStatus();
}

absl::Status ToChoices(absl::string_view name, const Json& value, Options* options) {
  constexpr absl::string_view kWanted = "an array of strings";
  if (!value.is_array()) return WrongType(name, kWanted, value);
  for (const Json& choice : value.array()) {
    if (!choice.is_string()) return WrongType("each element of choices", "a string", choice);
  }
  return SetConstraint(AnswerConstraint::Kind::kChoices, value.Dump(), options);
}

absl::Status ToSchema(absl::string_view name, const Json& value, Options* options) {
  if (value.is_string()) {
    return SetConstraint(AnswerConstraint::Kind::kSchema, value.string(), options);
  }
  if (!value.is_object() && !value.is_boolean()) {
    return WrongType(name, "a JSON Schema, or a string that holds one", value);
  }
  return SetConstraint(AnswerConstraint::Kind::kSchema, value.Dump(), options);
}

absl::Status ToNotation(absl::string_view name, const Json& value, AnswerConstraint::Kind kind,
                        Options* options) {
  std::string text;
  RETURN_IF_ERROR(ToString(name, value, &text));
  return SetConstraint(kind, std::move(text), options);
}

struct Key {
  absl::string_view name;
  // Null: a later version's.
  absl::Status (*take)(absl::string_view name, const Json& value, Options* options);
};
constexpr Key kKeys[] = {
    {"model",
     [](absl::string_view n, const Json& v, Options* o) { return ToString(n, v, &o->model); }},
    {"max_tokens", [](absl::string_view n, const Json& v,
                      Options* o) { return ToInteger(n, v, &o->max_tokens); }},
    {"temperature",
     [](absl::string_view n, const Json& v, Options* o) {
       o->says_temperature = true;
       return ToDouble(n, v, &o->temperature);
     }},
    {"top_k",
     [](absl::string_view n, const Json& v, Options* o) { return ToInteger(n, v, &o->top_k); }},
    {"top_p",
     [](absl::string_view n, const Json& v, Options* o) { return ToDouble(n, v, &o->top_p); }},
    {"min_p",
     [](absl::string_view n, const Json& v, Options* o) { return ToDouble(n, v, &o->min_p); }},
    {"repeat_penalty", [](absl::string_view n, const Json& v,
                          Options* o) { return ToDouble(n, v, &o->repeat_penalty); }},
    {"seed",
     [](absl::string_view n, const Json& v, Options* o) { return ToInteger(n, v, &o->seed); }},
    {"vote", [](absl::string_view n, const Json& v,
                Options* o) { return ToInteger(n, v, &o->vote, kMostVotes); }},
    {"n", [](absl::string_view n, const Json& v,
             Options* o) { return ToInteger(n, v, &o->n, kMostVotes); }},
    {"best_of", [](absl::string_view n, const Json& v,
                   Options* o) { return ToInteger(n, v, &o->best_of, kMostVotes); }},
    {"stop",
     [](absl::string_view n, const Json& v, Options* o) { return ToStopStrings(n, v, &o->stop); }},
    {"logit_bias", [](absl::string_view n, const Json& v,
                      Options* o) { return ToLogitBias(n, v, &o->logit_bias); }},
    {"lora",
     [](absl::string_view n, const Json& v, Options* o) { return ToAdapters(n, v, &o->lora); }},
    {"examples",
     [](absl::string_view n, const Json& v, Options* o) { return ToExamples(n, v, &o->examples); }},
    {"on_error",
     [](absl::string_view n, const Json& v, Options* o) {
       return ToEnum<OnError>(
           n, v, {{"error", OnError::kError}, {"null", OnError::kNull}, {"json", OnError::kJson}},
           &o->on_error);
     }},
    {"on_overflow",
     [](absl::string_view n, const Json& v, Options* o) {
       return ToEnum<OnOverflow>(n, v,
                                 {{"error", OnOverflow::kError},
                                  {"truncate_start", OnOverflow::kTruncateStart},
                                  {"truncate_end", OnOverflow::kTruncateEnd}},
                                 &o->on_overflow);
     }},
    {"on_length",
     [](absl::string_view n, const Json& v, Options* o) {
       return ToEnum<OnLength>(n, v, {{"cut", OnLength::kCut}, {"complete", OnLength::kComplete}},
                               &o->on_length);
     }},
    {"priority",
     [](absl::string_view n, const Json& v, Options* o) {
       return ToEnum<Priority>(
           n, v, {{"batch", Priority::kBatch}, {"interactive", Priority::kInteractive}},
           &o->priority);
     }},
    {"speculate",
     [](absl::string_view n, const Json& v, Options* o) {
       return ToEnum<Speculate>(
           n, v,
           {{"auto", Speculate::kAuto}, {"off", Speculate::kOff}, {"always", Speculate::kAlways}},
           &o->speculate);
     }},
    {"timeout_ms", [](absl::string_view n, const Json& v,
                      Options* o) { return ToInteger(n, v, &o->timeout_ms); }},
    {"max_seconds", [](absl::string_view n, const Json& v,
                       Options* o) { return ToDouble(n, v, &o->max_seconds); }},
    {"max_total_tokens", [](absl::string_view n, const Json& v,
                            Options* o) { return ToInteger(n, v, &o->max_total_tokens); }},
    {"max_cost",
     [](absl::string_view n, const Json& v, Options* o) { return ToDouble(n, v, &o->max_cost); }},
    {"messages",
     [](absl::string_view n, const Json& v, Options* o) { return ToBool(n, v, &o->messages); }},
    {"thinking",
     [](absl::string_view n, const Json& v, Options* o) {
       return ToEnum<Thinking>(n, v, {{"drop", Thinking::kDrop}, {"keep", Thinking::kKeep}},
                               &o->thinking);
     }},
    {"thinking_tokens", [](absl::string_view n, const Json& v,
                           Options* o) { return ToInteger(n, v, &o->thinking_tokens.emplace()); }},
    {"template_args", [](absl::string_view n, const Json& v,
                         Options* o) { return ToTemplateArgs(n, v, &o->template_args); }},
    {"choices", ToChoices},
    {"regex", [](absl::string_view n, const Json& v,
                 Options* o) { return ToNotation(n, v, AnswerConstraint::Kind::kRegex, o); }},
    {"schema", ToSchema},
    {"grammar", [](absl::string_view n, const Json& v,
                   Options* o) { return ToNotation(n, v, AnswerConstraint::Kind::kGrammar, o); }},
    {"json_spaces", [](absl::string_view n, const Json& v,
                       Options* o) { return ToBool(n, v, &o->constraint.json_spaces); }},
    {"additional", [](absl::string_view n, const Json& v,
                      Options* o) { return ToBool(n, v, &o->constraint.additional); }},
    {"strict_schema", [](absl::string_view n, const Json& v,
                         Options* o) { return ToBool(n, v, &o->constraint.strict_schema); }},
    {"cache",
     [](absl::string_view n, const Json& v, Options* o) { return ToBool(n, v, &o->cache); }},
};

constexpr absl::string_view kConstraints[] = {"choices", "regex", "schema", "grammar"};

// Walks the text once for what the document tree does not tell: where an error is, whether a key of
// the object is there twice, whether something is nested deeper than any option.
class Checker : public JsonEvents {
 public:
  explicit Checker(absl::string_view text) : text_(text) {}

  absl::Status status() const { return status_; }

  bool Null() override { return Value(); }
  bool Bool(bool) override { return Value(); }
  bool Integer(int64_t) override { return Value(); }
  bool Unsigned(uint64_t) override { return Value(); }
  bool Real(double, const std::string&) override { return Value(); }
  bool String(std::string) override { return Value(); }
  bool BeginArray() override { return Value() && Nest(); }
  bool EndArray() override { return --depth_ >= 0; }
  bool BeginObject() override { return Nest(); }
  bool EndObject() override { return --depth_ >= 0; }
  bool Key(std::string name) override {
    if (depth_ != 1 || names_.insert(name).second) return true;
    return Fail(absl::StrCat("option '", Shown(name), "' is there twice"));
  }
  void SyntaxError(size_t position, absl::string_view) override {
    const absl::string_view given = absl::StripLeadingAsciiWhitespace(text_);
    if (given.empty() || given[0] == '{') {
      Fail(absl::StrCat("options are not valid JSON: the error is at byte ", position));
    } else {
      Fail(absl::StrCat("options must be a JSON object, such as {\"seed\": 1}, got the text '",
                        Shown(given), "'"));
    }
  }

 private:
  bool Value() {
    return depth_ > 0 || Fail("options must be a JSON object, such as {\"seed\": 1}");
  }
  bool Nest() { return ++depth_ <= kMaxDepth || Fail("options are nested too deeply"); }
  bool Fail(absl::string_view message) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(message);
    return false;
  }

  static constexpr int kMaxDepth = kMaxGrammarDepth + 1;  // a schema, and the options around it

  const absl::string_view text_;
  int depth_ = 0;
  std::set<std::string> names_;
  absl::Status status_;
};

}  // namespace

absl::Status UnknownOption(absl::string_view name, absl::Span<const std::string> others) {
  absl::string_view nearest;
  size_t distance = (name.size() + 2) / 3 + 1;  // at most a third of its letters are wrong
  auto consider = [&](absl::string_view known) {
    const size_t from = EditDistance(name, known);
    if (from >= distance || from >= known.size()) return;
    nearest = known;
    distance = from;
  };
  for (const std::string& known : others) consider(known);
  for (const Key& key : kKeys) consider(key.name);
  std::string message = absl::StrCat("unknown option '", Shown(name), "'; ");
  if (!nearest.empty()) {
    absl::StrAppend(&message, "the nearest known one is '", nearest, "'");
  } else if (!others.empty()) {
    absl::StrAppend(&message, absl::StrJoin(others, ", "), " and generate()'s are known");
  } else {
    absl::StrAppend(&message, "sql/guide/options.md has tables of those that are known");
  }
  return absl::InvalidArgumentError(message);
}

bool IsGenerationOption(absl::string_view name) {
  return std::any_of(std::begin(kKeys), std::end(kKeys),
                     [name](const Key& key) { return key.name == name; });
}

absl::Status ParseGenerationOptions(absl::string_view text, GenerationOptions* options) {
  Checker checker(text);
  ReadJson(text, &checker);
  RETURN_IF_ERROR(checker.status());
  const std::optional<Json> object = Json::Parse(text);
  if (!object || !object->is_object())
    return absl::InvalidArgumentError("options must be a JSON object");

  GenerationOptions result = *options;
  std::string constraint;  // the option that set it
  for (const auto& [name, value] : object->members()) {
    const auto key = std::find_if(std::begin(kKeys), std::end(kKeys),
                                  [&name = name](const Key& k) { return k.name == name; });
    if (key == std::end(kKeys)) return UnknownOption(name);
    const bool constrains =
        std::find(std::begin(kConstraints), std::end(kConstraints), name) != std::end(kConstraints);
    if (constrains && !constraint.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(constraint, " and ", name, " cannot be combined: an answer follows one"));
    }
    if (constrains) constraint = name;
    RETURN_IF_ERROR(key->take(name, value, &result));
  }
  if (NumDrawn(result) > 0 && result.temperature == 0 && object->Has("temperature")) {
    return absl::InvalidArgumentError(
        "temperature must be > 0 beside vote, n or best_of: at 0 the answers that they draw would "
        "all be the same; without a temperature they are drawn at 1");
  }
  RETURN_IF_ERROR(ValidateGenerationOptions(result));
  *options = std::move(result);
  return absl::OkStatus();
}

}  // namespace lm
