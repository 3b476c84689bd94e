// Strings and numbers of SchemaCompiler.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/regex_parser.h"
#include "engine/grammar/schema/schema_compiler.h"
#include "engine/grammar/string_formats.h"
#include "engine/grammar/text_set.h"

namespace lm {
namespace {

// Characters of a string that must match something besides, at most: what a model writes is
// shorter, and each length takes states.
constexpr int64_t kMostMatchedChars = 4000;

std::vector<std::string> ExcludedOf(const MergedSchema& schema, uint8_t kinds) {
  std::vector<std::string> texts;
  for (const SchemaJson* value : schema.excluded) {
    if ((KindOf(*value) & kinds) == 0) continue;
    texts.push_back(value->is_string() ? value->string() : JsonText::Scalar(*value));
  }
  return texts;
}

}  // namespace

absl::Status SchemaCompiler::RegexError(const SchemaJson& where, const absl::Status& status) const {
  // PatternSet's errors have their place already.
  if (absl::IsCancelled(status) || absl::StartsWith(status.message(), "schema: ")) return status;
  return document_.Error(where, absl::StripPrefix(status.message(), "regex: "));
}

absl::StatusOr<SharedTextSet> SchemaCompiler::PatternSet(const SchemaJson& where,
                                                         const std::string& pattern) {
  absl::StatusOr<SharedTextSet> set = work_.texts.OfPattern(pattern);
  if (!set.ok()) return RegexError(where, set.status());
  return set;
}

absl::StatusOr<TextSet> SchemaCompiler::StringSet(const MergedSchema& schema) {
  std::optional<TextSet> all;
  const SchemaJson* where = schema.parts.empty() ? &document_.root() : schema.parts.back().schema;
  auto narrow = [&](const absl::StatusOr<SharedTextSet>& set,
                    const SchemaJson& at) -> absl::Status {
    if (!set.ok()) return RegexError(at, set.status());
    absl::StatusOr<TextSet> both = all ? all->Intersect(**set) : absl::StatusOr<TextSet>(**set);
    if (!both.ok()) return RegexError(at, both.status());
    all = *std::move(both);
    return absl::OkStatus();
  };
  std::optional<int64_t> max = schema.max_length;
  for (const SchemaJson* format : schema.formats) {
    const FormatOfSet of_set = FormatRegexOfSet(format->string(), schema.max_length);
    RETURN_IF_ERROR(narrow(work_.texts.OfFormat(of_set.regex), *format));
    if (of_set.most) max = std::min(max.value_or(*of_set.most), *of_set.most);
  }
  for (const SchemaJson* pattern : schema.patterns) {
    RETURN_IF_ERROR(narrow(PatternSet(*pattern, pattern->string()), *pattern));
  }
  if (!all) {
    ASSIGN_OR_RETURN(all, TextSet::All());
  }
  auto take_away = [&](const TextSet& set, const SchemaJson& at) -> absl::Status {
    absl::StatusOr<TextSet> rest = all->Minus(set);
    if (!rest.ok()) return RegexError(at, rest.status());
    all = *std::move(rest);
    return absl::OkStatus();
  };
  for (const SchemaJson* pattern : schema.not_patterns) {
    ASSIGN_OR_RETURN(const SharedTextSet set, PatternSet(*pattern, pattern->string()));
    RETURN_IF_ERROR(take_away(*set, *pattern));
  }
  std::vector<std::string> excluded = ExcludedOf(schema, kString);
  if (!excluded.empty()) {
    const absl::StatusOr<TextSet> set = TextSet::Of(std::move(excluded));
    if (!set.ok()) return RegexError(*where, set.status());
    RETURN_IF_ERROR(take_away(*set, *where));
  }
  if (schema.min_length == 0 && !max) return *std::move(all);
  if (max) max = std::min(*max, std::max(kMostMatchedChars, schema.min_length));
  absl::StatusOr<TextSet> set = all->OfLength(schema.min_length, max);
  if (!set.ok()) {
    const SchemaJson* const at = schema.max_length       ? schema.at.max_length
                                 : schema.min_length > 0 ? schema.at.min_length
                                                         : where;
    return RegexError(*at, set.status());
  }
  return set;
}

absl::StatusOr<Fragment> SchemaCompiler::String(const MergedSchema& schema) {
  const MergedSchema::Places& at = schema.at;
  if (schema.max_length && *schema.max_length < schema.min_length) {
    return builder_.Nothing(Together({at.min_length, at.max_length}));
  }
  const bool is_one = schema.patterns.size() + schema.formats.size() <= 1 &&
                      schema.not_patterns.empty() && ExcludedOf(schema, kString).empty();
  const SchemaJson* source = nullptr;
  if (!schema.patterns.empty()) source = schema.patterns[0];
  if (!schema.formats.empty()) source = schema.formats[0];
  if (is_one && source == nullptr) {
    if (schema.min_length == 0 && !schema.max_length) return json_.AnyString();
    return json_.Quoted(builder_.Repeat(json_.StringChar(), schema.min_length, schema.max_length));
  }
  if (is_one) {
    const bool is_format = !schema.formats.empty();
    const RegexOptions options{TextForm::kJsonString, /*pattern=*/!is_format};
    const absl::string_view regex = is_format ? FormatRegex(source->string()) : source->string();
    const absl::StatusOr<RegexPiece> piece = ParseRegex(regex, options, &builder_);
    if (!piece.ok()) return RegexError(*source, piece.status());
    const uint64_t min = static_cast<uint64_t>(schema.min_length);
    const uint64_t max =
        schema.max_length ? static_cast<uint64_t>(*schema.max_length) : kUnboundedChars;
    if (min <= piece->min_chars && piece->max_chars <= max) return json_.Quoted(piece->fragment);
    // The lengths say more than the pattern does.
    const uint64_t least = std::max(min, piece->min_chars), most = std::min(max, piece->max_chars);
    if (least > most) {
      return builder_.Nothing(Together({source, min > most ? at.min_length : at.max_length}));
    }
    if (piece->unit && least <= static_cast<uint64_t>(kMaxRepeat)) {
      std::optional<int64_t> count;
      if (most != kUnboundedChars) count = std::min(static_cast<int64_t>(most), kMaxRepeat);
      return json_.Quoted(builder_.Repeat(ClassIn(options.form, *piece->unit, &builder_),
                                          static_cast<int64_t>(least), count));
    }
  }
  std::string asked = absl::StrCat(schema.min_length, " ", schema.max_length.value_or(-1));
  for (const auto* texts : {&schema.formats, &schema.patterns, &schema.not_patterns}) {
    for (const SchemaJson* text : *texts) absl::StrAppend(&asked, " ", text->Dump());
    absl::StrAppend(&asked, ";");
  }
  for (const std::string& text : ExcludedOf(schema, kString)) {
    absl::StrAppend(&asked, " ", JsonString(text));
  }
  if (auto known = string_rules_.find(asked); known != string_rules_.end()) {
    return builder_.Call(known->second);
  }
  ASSIGN_OR_RETURN(const TextSet set, StringSet(schema));
  if (set.empty()) {
    std::vector<const SchemaJson*> places = schema.patterns;
    places.insert(places.end(), schema.formats.begin(), schema.formats.end());
    places.insert(places.end(), schema.not_patterns.begin(), schema.not_patterns.end());
    places.push_back(at.min_length);
    places.push_back(at.max_length);
    return builder_.Nothing(Together(places));
  }
  const RuleId rule = builder_.AddRule("a string");
  builder_.Define(rule, json_.Quoted(set.Write(TextForm::kJsonString, &builder_)));
  string_rules_.emplace(std::move(asked), rule);
  return builder_.Call(rule);
}

absl::StatusOr<Fragment> SchemaCompiler::Number(const MergedSchema& schema) {
  std::vector<std::string> excluded = ExcludedOf(schema, kNumbers);
  const bool is_fraction = (schema.kinds & kInteger) == 0;
  if (excluded.empty() && !is_fraction) return NumberWith(schema, &json_, &builder_);
  AutomatonBuilder builder;
  JsonText json(&builder, JsonSpaces::kNone);
  const Fragment fragment = NumberWith(schema, &json, &builder);
  ASSIGN_OR_RETURN(TextSet set, TextSet::OfFragment(fragment, std::move(builder)));
  if (is_fraction) {
    // Without zeros at its end, what has a fraction is no integer.
    ASSIGN_OR_RETURN(const TextSet fractions, TextSet::OfRegex("-?[0-9]+\\.[0-9]+"));
    ASSIGN_OR_RETURN(set, set.Intersect(fractions));
  }
  if (!excluded.empty()) {
    ASSIGN_OR_RETURN(const TextSet others, TextSet::Of(std::move(excluded)));
    ASSIGN_OR_RETURN(set, set.Minus(others));
  }
  if (set.empty()) return builder_.Nothing(Together({schema.at.lower, schema.at.upper}));
  return set.Write(TextForm::kPlain, &builder_);
}

Fragment SchemaCompiler::NumberWith(const MergedSchema& schema, JsonText* json,
                                    AutomatonBuilder* builder) const {
  const bool is_integer = (schema.kinds & kFraction) == 0;
  if (!schema.limits_numbers) return is_integer ? json->AnyInteger() : json->AnyNumber();
  NumberRange range = schema.numbers;
  if (is_integer) range.max_fraction_digits = 0;
  const MergedSchema::Places& at = schema.at;
  const int order =
      range.lower && range.upper ? Compare(range.lower->value, range.upper->value) : -1;
  const bool apart =
      order > 0 || (order == 0 && !(range.lower->inclusive && range.upper->inclusive));
  std::string why;
  if (apart) {
    why = Together({at.lower, at.upper});
  } else if (is_integer || at.multiple_of != nullptr || !range.lower || !range.upper) {
    why = Together({at.lower, at.upper, at.multiple_of, is_integer ? at.type : nullptr});
  } else {
    why = absl::StrCat("no number that is written with ", kMaxDigits,
                       " digits at most and without an exponent lies between ",
                       absl::StrJoin(Shown({at.lower, at.upper}), " and "));
  }
  return NumbersIn(range, std::move(why), builder);
}

}  // namespace lm
