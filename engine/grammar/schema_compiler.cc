#include "engine/grammar/schema_compiler.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/regex_parser.h"
#include "engine/grammar/schema_branches.h"
#include "engine/grammar/string_formats.h"

namespace lm {
namespace {

// Members of schemas that may be looked at: combinations of anyOf within allOf can be exponentially
// many.
constexpr int64_t kMaxWork = 2'000'000;

absl::StatusOr<std::shared_ptr<const Grammar>> Compile(absl::string_view schema,
                                                       bool absent_is_null, JsonSpaces spaces) {
  ASSIGN_OR_RETURN(const std::unique_ptr<SchemaDocument> document, SchemaDocument::Parse(schema));
  ASSIGN_OR_RETURN(Automaton automaton,
                   SchemaCompiler(document.get(), absent_is_null, spaces).Compile());
  return std::make_shared<const Grammar>(std::move(automaton));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Grammar>> CompileJsonSchema(absl::string_view schema,
                                                                 JsonSpaces spaces) {
  return Compile(schema, /*absent_is_null=*/false, spaces);
}

absl::StatusOr<std::shared_ptr<const Grammar>> CompileExtractionSchema(absl::string_view schema,
                                                                       JsonSpaces spaces) {
  return Compile(schema, /*absent_is_null=*/true, spaces);
}

absl::StatusOr<Automaton> SchemaCompiler::Compile() {
  const RuleId root = RuleOf({{&document_.root()}});
  while (!queue_.empty()) {
    const auto [rule, conjunction] = std::move(queue_.front());
    queue_.pop_front();
    ASSIGN_OR_RETURN(const Fragment body, BodyOf(conjunction));
    RETURN_IF_ERROR(builder_.status());
    builder_.Define(rule, body);
    if (work_ > kMaxWork) {
      return document_.Error(*conjunction.back().schema,
                             "too large: too many combinations of allOf, anyOf and oneOf");
    }
  }
  absl::StatusOr<Automaton> automaton = std::move(builder_).Build(root);
  if (automaton.ok()) return automaton;
  return absl::InvalidArgumentError(absl::StrCat("schema: ", automaton.status().message()));
}

RuleId SchemaCompiler::RuleOf(Conjunction conjunction) {
  auto [at, is_new] = rules_.try_emplace(conjunction, -1);
  if (is_new) {
    at->second = builder_.AddRule(document_.PointerOf(*conjunction.back().schema));
    queue_.emplace_back(at->second, std::move(conjunction));
  }
  return at->second;
}

absl::StatusOr<Fragment> SchemaCompiler::BodyOf(const Conjunction& conjunction) {
  ASSIGN_OR_RETURN(const MergedSchema schema, Merge(document_, conjunction, &work_));
  const MergedSchema::Places& at = schema.at;
  if (schema.impossible) return builder_.Nothing(Together({at.no_schema}));
  if (!schema.choices.empty()) return BranchesOf(schema);
  if (schema.values && schema.values->empty()) {
    return builder_.Nothing(
        Together({at.values, at.other_values != nullptr ? at.other_values : at.type}));
  }
  if (schema.kinds == 0) return builder_.Nothing(Together({at.other_type, at.type}));
  if (schema.values) {
    std::vector<Fragment> values;
    std::vector<std::string> scalars;
    for (const SchemaJson* value : *schema.values) {
      if (value->is_structured()) {
        values.push_back(json_.Value(*value));
      } else {
        scalars.push_back(JsonText::Scalar(*value));
      }
    }
    if (!scalars.empty()) values.push_back(builder_.AnyLiteral(std::move(scalars)));
    return builder_.Alternate(values);
  }
  if (schema.parts.empty()) return json_.AnyValue();
  std::vector<Fragment> kinds;
  if (schema.kinds & kObject) {
    ASSIGN_OR_RETURN(const Fragment object, Object(schema));
    kinds.push_back(object);
  }
  if (schema.kinds & kArray) kinds.push_back(Array(schema));
  if (schema.kinds & kString) {
    ASSIGN_OR_RETURN(const Fragment string, String(schema));
    kinds.push_back(string);
  }
  if (schema.kinds & (kInteger | kFraction)) {
    ASSIGN_OR_RETURN(const Fragment number, Number(schema));
    kinds.push_back(number);
  }
  if (schema.kinds & kBoolean) kinds.push_back(json_.Boolean());
  if (schema.kinds & kNull) kinds.push_back(json_.Null());
  return builder_.Alternate(kinds);
}

std::string SchemaCompiler::Together(std::initializer_list<const SchemaJson*> places) const {
  constexpr size_t kShownBytes = 60;
  std::vector<std::string> shown;
  for (const SchemaJson* place : places) {
    if (place == nullptr) continue;
    std::string value = place->Dump();
    if (value.size() > kShownBytes) {
      value.resize(ValidUtf8Prefix(absl::string_view(value).substr(0, kShownBytes)));
      value += "...";
    }
    shown.push_back(absl::StrCat(document_.PointerOf(*place), " (", value, ")"));
  }
  if (shown.size() < 2) return absl::StrCat(absl::StrJoin(shown, ""), " leaves nothing");
  const std::string last = std::move(shown.back());
  shown.pop_back();
  return absl::StrCat(absl::StrJoin(shown, ", "), " and ", last, " cannot hold together");
}

absl::StatusOr<Fragment> SchemaCompiler::BranchesOf(const MergedSchema& schema) {
  const MergedSchema::Choice& choice = schema.choices.front();
  // What stands around the choice, which is settled now.
  Conjunction around = schema.parts;
  SchemaPart& owner = around[choice.part];
  (choice.is_one_of ? owner.one_of_settled : owner.any_of_settled) = true;
  // A schema of nothing but the choice asks for no more.
  const bool is_bare = std::all_of(
      owner.schema->members().begin(), owner.schema->members().end(), [&](const auto& member) {
        return member.first == (choice.is_one_of ? "oneOf" : "anyOf") || member.first == "title" ||
               member.first == "description";
      });
  if (is_bare) around.erase(around.begin() + static_cast<ptrdiff_t>(choice.part));
  std::vector<Fragment> branches;
  std::vector<MergedSchema> merged;  // of a oneOf
  for (const SchemaJson& branch : choice.branches->array()) {
    Conjunction conjunction;
    for (const SchemaPart& part : around) {
      if (std::find(conjunction.begin(), conjunction.end(), part) == conjunction.end()) {
        conjunction.push_back(part);
      }
    }
    conjunction.push_back({&branch});
    work_ += static_cast<int64_t>(conjunction.size());
    if (choice.is_one_of) {
      ASSIGN_OR_RETURN(MergedSchema one, Merge(document_, conjunction, &work_));
      for (size_t i = 0; i < merged.size() && work_ <= kMaxWork; ++i) {
        ASSIGN_OR_RETURN(const bool apart, AreApart(document_, merged[i], one, &work_));
        if (apart) continue;
        return document_.Error(
            branch, absl::StrCat("a value could match this branch of oneOf and branch ", i,
                                 " too: tell them apart by type, or by a required property with "
                                 "const or enum, or write anyOf"));
      }
      merged.push_back(std::move(one));
    }
    branches.push_back(builder_.Call(RuleOf(std::move(conjunction))));
  }
  return builder_.Alternate(branches);
}

absl::StatusOr<Fragment> SchemaCompiler::Number(const MergedSchema& schema) {
  const bool is_integer = (schema.kinds & kFraction) == 0;
  if (!schema.limits_numbers) return is_integer ? json_.AnyInteger() : json_.AnyNumber();
  NumberRange range = schema.numbers;
  if (is_integer) range.max_fraction_digits = 0;
  const MergedSchema::Places& at = schema.at;
  const int order =
      range.lower && range.upper ? Compare(range.lower->value, range.upper->value) : -1;
  const bool apart =
      order > 0 || (order == 0 && !(range.lower->inclusive && range.upper->inclusive));
  std::string why =
      apart ? Together({at.lower, at.upper})
            : Together({at.lower, at.upper, at.multiple_of, is_integer ? at.type : nullptr});
  return NumbersIn(range, std::move(why), &builder_);
}

absl::StatusOr<Fragment> SchemaCompiler::String(const MergedSchema& schema) {
  const MergedSchema::Places& at = schema.at;
  if (schema.max_length && *schema.max_length < schema.min_length) {
    return builder_.Nothing(Together({at.min_length, at.max_length}));
  }
  const SchemaJson* source = schema.pattern != nullptr ? schema.pattern : schema.format;
  if (source == nullptr) {
    if (schema.min_length == 0 && !schema.max_length) return json_.AnyString();
    return json_.Quoted(builder_.Repeat(json_.StringChar(), schema.min_length, schema.max_length));
  }
  if (schema.pattern != nullptr && schema.format != nullptr) {
    return document_.Error(*schema.pattern, "pattern beside format is not supported");
  }
  absl::string_view regex = source->string();
  RegexOptions options{TextForm::kJsonString, /*search=*/true};
  if (schema.format != nullptr) {
    regex = FormatRegex(regex);
    options.search = false;
  }
  absl::StatusOr<RegexPiece> piece = ParseRegex(regex, options, &builder_);
  if (!piece.ok()) {
    return document_.Error(*source, absl::StripPrefix(piece.status().message(), "regex: "));
  }
  const uint64_t min = static_cast<uint64_t>(schema.min_length);
  const uint64_t max =
      schema.max_length ? static_cast<uint64_t>(*schema.max_length) : kUnboundedChars;
  if (min <= piece->min_chars && piece->max_chars <= max) return json_.Quoted(piece->fragment);
  // The lengths say more than the pattern does.
  const uint64_t least = std::max(min, piece->min_chars), most = std::min(max, piece->max_chars);
  if (least > most) {
    return builder_.Nothing(Together({source, min > most ? at.min_length : at.max_length}));
  }
  if (!piece->unit || least > static_cast<uint64_t>(kMaxRepeat)) {
    return document_.Error(
        *source,
        "minLength and maxLength beside this are not supported: write the lengths into the "
        "pattern, as in ^[a-z]{2,10}$");
  }
  std::optional<int64_t> count;
  if (most != kUnboundedChars) count = std::min(static_cast<int64_t>(most), kMaxRepeat);
  return json_.Quoted(builder_.Repeat(ClassIn(options.form, *piece->unit, &builder_),
                                      static_cast<int64_t>(least), count));
}

}  // namespace lm
