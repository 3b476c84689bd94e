// What each keyword asks for.
#include <algorithm>
#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/automaton_builder.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/schema/schema_merger.h"
#include "engine/grammar/schema/schema_values.h"
#include "engine/grammar/string_formats.h"

namespace lm {
namespace {

uint8_t KindsNamed(absl::string_view type) {
  if (type == "null") return kNull;
  if (type == "boolean") return kBoolean;
  if (type == "integer") return kInteger;
  if (type == "number") return kNumbers;
  if (type == "string") return kString;
  if (type == "array") return kArray;
  if (type == "object") return kObject;
  if (type == "any") return kAllKinds;  // draft 3
  return 0;
}

bool NamesAny(const SchemaJson& type) {
  auto is_any = [](const SchemaJson& one) { return one.is_string() && one.string() == "any"; };
  return is_any(type) ||
         (type.is_array() && std::any_of(type.array().begin(), type.array().end(), is_any));
}

}  // namespace

uint8_t KindsOfType(const SchemaJson& type) {
  if (type.is_string()) return KindsNamed(type.string());
  if (!type.is_array()) return 0;
  uint8_t kinds = 0;
  for (const SchemaJson& one : type.array()) {
    const uint8_t named = one.is_string() ? KindsNamed(one.string()) : 0;
    if (named == 0) return 0;
    kinds |= named;
  }
  return kinds;
}

bool SchemaMerger::IsTrue(absl::string_view keyword) const {
  const SchemaJson* value = part_.schema->Find(keyword);
  return value != nullptr && value->is_boolean() && value->boolean();
}

absl::Status SchemaMerger::AddKeyword(int32_t number) {
  const auto& [name, value] = part_.schema->members()[number];
  if (document_.RefStandsAlone(*part_.schema) && name != "$ref") return absl::OkStatus();
  const KeywordInfo* info = FindKeyword(name);
  if (info == nullptr) {
    const SchemaOptions& options = document_.options();
    if (absl::StartsWith(name, "x-")) return absl::OkStatus();
    if (!options.strict && (options.additional || !IsMisspelt(name))) return absl::OkStatus();
    return document_.Error(value, absl::StrCat("keyword ", UnknownKeyword(name), " is not known"));
  }
  switch (info->keyword) {
    case Keyword::kAnnotation:
    case Keyword::kThen:
    case Keyword::kMinContains:
    case Keyword::kRef:
    case Keyword::kAllOf:
    case Keyword::kNot:
      return absl::OkStatus();
    default:
      break;
  }
  part_asks_ = true;
  implied_kinds_ |= info->kinds;
  return Apply(*info, name, value, number);
}

absl::Status SchemaMerger::Apply(const KeywordInfo& info, const std::string& name,
                                 const SchemaJson& value, int32_t keyword) {
  switch (info.keyword) {
    case Keyword::kUnevaluatedItems:
    case Keyword::kUnevaluatedProperties:
      if (info.keyword == Keyword::kUnevaluatedProperties) {
        merged_.unevaluated_properties.push_back(&value);
      }
      unevaluated_.push_back({part_.schema, &value, info.keyword});
      return absl::OkStatus();
    case Keyword::kType:
      return AddType(value);
    case Keyword::kNullable:
      if (!value.is_boolean()) return document_.Error(value, "nullable must be a boolean");
      if (document_.options().strict) {
        return document_.Error(value, "keyword \"nullable\" is OpenAPI's, not JSON Schema's");
      }
      nullable_ = value.boolean();
      return absl::OkStatus();
    case Keyword::kEnum: {
      if (!value.is_array()) return document_.Error(value, "enum must be an array");
      std::vector<const SchemaJson*> values;
      for (const SchemaJson& one : value.array()) values.push_back(&one);
      AddValues(value, values);
      return absl::OkStatus();
    }
    case Keyword::kConst:
      AddValues(value, {&value});
      return absl::OkStatus();
    case Keyword::kAnyOf:
    case Keyword::kOneOf: {
      RETURN_IF_ERROR(CheckBranches(name, value));
      if (info.keyword == Keyword::kAnyOf && asks_what_is_unevaluated_ &&
          value.size() <= kMostTogether) {
        AddChoice(Subsets(value));
        return absl::OkStatus();
      }
      std::vector<Conjunction> alternatives;
      for (const SchemaJson& branch : value.array()) alternatives.push_back({{&branch}});
      AddChoice(std::move(alternatives), info.keyword == Keyword::kOneOf ? &value : nullptr);
      return absl::OkStatus();
    }
    case Keyword::kIf: {
      const SchemaJson* then = part_.schema->Find("then");
      const SchemaJson* otherwise = part_.schema->Find("else");
      if (then == nullptr && otherwise == nullptr) {
        // What it evaluates counts where it is valid; where it is not known to be, nothing does.
        if (document_.has_unevaluated()) AddChoice({{{&value}}, {}});
        return absl::OkStatus();
      }
      Conjunction yes = {{&value}}, no = {{&value, /*negated=*/true}};
      if (then != nullptr) yes.push_back({then});
      if (otherwise != nullptr) no.push_back({otherwise});
      AddChoice({std::move(yes), std::move(no)});
      return absl::OkStatus();
    }
    case Keyword::kMinimum:
      return AddBound(name, value, /*is_lower=*/true, !IsTrue("exclusiveMinimum"));
    case Keyword::kMaximum:
      return AddBound(name, value, /*is_lower=*/false, !IsTrue("exclusiveMaximum"));
    case Keyword::kExclusiveMinimum:
    case Keyword::kExclusiveMaximum: {
      const bool is_lower = info.keyword == Keyword::kExclusiveMinimum;
      // Draft 4: says how `minimum` or `maximum` beside it is meant.
      if (value.is_boolean() && part_.schema->Has(is_lower ? "minimum" : "maximum")) {
        return absl::OkStatus();
      }
      return AddBound(name, value, is_lower, false);
    }
    case Keyword::kMultipleOf:
      return AddMultiple(value);
    case Keyword::kMinLength:
      return AddLeast(name, value, 0, &merged_.min_length, &merged_.at.min_length);
    case Keyword::kMaxLength:
      return AddMost(name, value, 0, &merged_.max_length, &merged_.at.max_length);
    case Keyword::kPattern:
      return AddText(name, value, &merged_.patterns);
    case Keyword::kFormat:
      return AddFormat(value);
    default:
      break;
  }
  if ((info.kinds & kArray) != 0) return ApplyToArrays(info.keyword, name, value);
  return ApplyToObjects(info.keyword, name, value, keyword);
}

absl::Status SchemaMerger::ApplyToArrays(Keyword keyword, const std::string& name,
                                         const SchemaJson& value) {
  switch (keyword) {
    case Keyword::kPrefixItems:
      if (!value.is_array()) return document_.Error(value, "prefixItems must be an array");
      array_.prefix = &value;
      return absl::OkStatus();
    case Keyword::kItems:
      if (value.is_array()) {
        array_.prefix = &value;
      } else {
        array_.rest = SchemaPart{&value};
      }
      return absl::OkStatus();
    case Keyword::kAdditionalItems:
      // Speaks only where `items` is an array.
      if (const SchemaJson* items = part_.schema->Find("items");
          items != nullptr && items->is_array()) {
        array_.rest = SchemaPart{&value};
      }
      return absl::OkStatus();
    case Keyword::kMinItems:
      return AddLeast(name, value, 0, &merged_.min_items, &merged_.at.min_items);
    case Keyword::kMaxItems:
      return AddMost(name, value, 0, &merged_.max_items, &merged_.at.max_items);
    case Keyword::kContains:
      return AddContains(value);
    default:  // uniqueItems
      if (!value.is_boolean()) return document_.Error(value, "uniqueItems must be a boolean");
      if (value.boolean()) {
        merged_.unique_items = true;
        merged_.at.unique_items = &value;
      }
      return absl::OkStatus();
  }
}

absl::Status SchemaMerger::ApplyToObjects(Keyword keyword, const std::string& name,
                                          const SchemaJson& value, int32_t number) {
  switch (keyword) {
    case Keyword::kProperties:
    case Keyword::kPatternProperties:
      if (!value.is_object())
        return document_.Error(value, absl::StrCat(name, " must be an object"));
      work_.members += static_cast<int64_t>(value.size());
      (keyword == Keyword::kProperties ? object_.properties : object_.patterns) = &value;
      return absl::OkStatus();
    case Keyword::kAdditionalProperties:
      object_.additional = &value;
      return absl::OkStatus();
    case Keyword::kPropertyNames:
      merged_.names.push_back(&value);
      return absl::OkStatus();
    case Keyword::kRequired:
      return AddRequired(value, value);
    case Keyword::kMinProperties:
      return AddLeast(name, value, 0, &merged_.min_properties, &merged_.at.min_properties);
    case Keyword::kMaxProperties:
      return AddMost(name, value, 0, &merged_.max_properties, &merged_.at.max_properties);
    default:
      break;
  }
  // Dependencies: the member is not there, or it is and what follows from it holds.
  if (!value.is_object()) return document_.Error(value, absl::StrCat(name, " must be an object"));
  for (size_t i = 0; i < value.size(); ++i) {
    const SchemaJson& asked = value.members()[i].second;
    SchemaPart present{part_.schema};
    present.asks = SchemaPart::Asks::kPresent;
    present.keyword = number;
    present.member = static_cast<int32_t>(i);
    SchemaPart follows{&asked};
    if (asked.is_array()) follows.asks = SchemaPart::Asks::kNames;
    AddChoice({{present.Negated()}, {present, follows}});
  }
  return absl::OkStatus();
}

absl::Status SchemaMerger::AddPresence(const SchemaPart& part) {
  const SchemaJson& names =
      part.keyword < 0 ? *part.schema : part.schema->members()[part.keyword].second;
  const std::string& name =
      names.is_array() ? names.array()[part.member].string() : names.members()[part.member].first;
  part_asks_ = true;
  merged_.at.required = &names;
  if (part.negated) {
    merged_.forbidden.push_back(name);
  } else {
    Keep(kObject);
    Require(name);
  }
  return absl::OkStatus();
}

absl::Status SchemaMerger::AddType(const SchemaJson& value) {
  const uint8_t kinds = KindsOfType(value);
  if (kinds == 0) {
    return document_.Error(value,
                           "type must be null, boolean, integer, number, string, array, object, "
                           "or an array of those");
  }
  if (document_.options().strict && NamesAny(value)) {
    return document_.Error(value, "type \"any\" is none of JSON Schema since draft 4");
  }
  has_type_ = true;
  Keep(kinds);
  return absl::OkStatus();
}

// Keeps what is in both, if there were values already.
void SchemaMerger::AddValues(const SchemaJson& keyword,
                             const std::vector<const SchemaJson*>& values) {
  if (!merged_.values) {
    merged_.values = values;
    merged_.at.values = &keyword;
    return;
  }
  const bool had_some = !merged_.values->empty();
  work_.members += static_cast<int64_t>(merged_.values->size() + values.size());
  merged_.values = ValuesInBoth(*merged_.values, values);
  if (had_some && merged_.values->empty()) merged_.at.other_values = &keyword;
}

absl::StatusOr<Decimal> SchemaMerger::NumberOf(absl::string_view name, const SchemaJson& value) {
  if (!value.is_number()) {
    return document_.Error(value, absl::StrCat(name, " must be a number"));
  }
  std::optional<Decimal> decimal = ParseDecimal(value.Dump());
  if (!decimal) return document_.Error(value, absl::StrCat(name, " has too great an exponent"));
  return *std::move(decimal);
}

absl::Status SchemaMerger::AddBound(absl::string_view name, const SchemaJson& value, bool is_lower,
                                    bool inclusive) {
  ASSIGN_OR_RETURN(Decimal decimal, NumberOf(name, value));
  Tighten(value, is_lower, {std::move(decimal), inclusive});
  return absl::OkStatus();
}

void SchemaMerger::Tighten(const SchemaJson& value, bool is_lower, NumberBound other) {
  merged_.limits_numbers = true;
  std::optional<NumberBound>* const bound =
      is_lower ? &merged_.numbers.lower : &merged_.numbers.upper;
  if (*bound) {
    const int order = Compare(other.value, (*bound)->value);
    const bool tighter = order == 0 ? !other.inclusive : (order > 0) == is_lower;
    if (!tighter) return;
  }
  *bound = std::move(other);
  (is_lower ? merged_.at.lower : merged_.at.upper) = &value;
}

absl::Status SchemaMerger::AddMultiple(const SchemaJson& value) {
  ASSIGN_OR_RETURN(const Decimal step, NumberOf("multipleOf", value));
  merged_.limits_numbers = true;
  merged_.at.multiple_of = &value;
  if (AddStep(step, &merged_.numbers)) return absl::OkStatus();
  return document_.Error(
      value, absl::StrCat("multipleOf is supported for numbers above 0 that have, all together, a "
                          "common multiple of at most ",
                          kMaxMultiple, " in the smallest digit"));
}

absl::StatusOr<int64_t> SchemaMerger::CountOf(absl::string_view name, const SchemaJson& value) {
  const bool is_whole = value.is_unsigned() || (value.is_float() && value.number() >= 0 &&
                                                value.number() == std::floor(value.number()));
  if (!is_whole) {
    return document_.Error(value, absl::StrCat(name, " must be a whole number, not negative"));
  }
  return static_cast<int64_t>(std::min<double>(value.number(), 1e15));
}

absl::Status SchemaMerger::AddLeast(absl::string_view name, const SchemaJson& value, int64_t more,
                                    int64_t* least, const SchemaJson** at) {
  ASSIGN_OR_RETURN(int64_t count, CountOf(name, value));
  count += more;
  if (count > kMaxRepeat) {
    return document_.Error(value, absl::StrCat(name, " is too large, limit ", kMaxRepeat));
  }
  if (count > *least) *at = &value;
  *least = std::max(*least, count);
  return absl::OkStatus();
}

// Beyond kMaxRepeat it makes no difference to what a model writes.
absl::Status SchemaMerger::AddMost(absl::string_view name, const SchemaJson& value, int64_t less,
                                   std::optional<int64_t>* most, const SchemaJson** at) {
  ASSIGN_OR_RETURN(int64_t count, CountOf(name, value));
  count -= less;
  if (count < 0) {
    merged_.impossible = true;
    merged_.at.no_schema = &value;
    return absl::OkStatus();
  }
  if (!*most || count < **most) *at = &value;
  *most = std::min({count, most->value_or(kMaxRepeat), kMaxRepeat});
  return absl::OkStatus();
}

absl::Status SchemaMerger::AddText(absl::string_view name, const SchemaJson& value,
                                   std::vector<const SchemaJson*>* texts) {
  if (!value.is_string()) return document_.Error(value, absl::StrCat(name, " must be a string"));
  const bool is_known = std::any_of(texts->begin(), texts->end(),
                                    [&](const SchemaJson* known) { return *known == value; });
  if (!is_known) texts->push_back(&value);
  return absl::OkStatus();
}

absl::Status SchemaMerger::AddFormat(const SchemaJson& value) {
  if (!value.is_string()) return document_.Error(value, "format must be a string");
  const std::string& format = value.string();
  // OpenAPI's formats of numbers.
  if (format == "float" || format == "double") return absl::OkStatus();
  if (const auto bounds = BoundsOfFormat(format)) {
    Tighten(value, true, {bounds->first, true});
    Tighten(value, false, {bounds->second, true});
    return absl::OkStatus();
  }
  if (FormatRegex(format).empty()) {
    if (!document_.options().strict) return absl::OkStatus();  // an annotation
    return document_.Error(value, absl::StrCat("format \"", absl::CHexEscape(format.substr(0, 100)),
                                               "\" is not known; there are ", FormatNames()));
  }
  return AddText("format", value, &merged_.formats);
}

absl::Status SchemaMerger::AddContains(const SchemaJson& value) {
  MergedSchema::Contains contains{SchemaPart{&value}, 1, std::nullopt, &value};
  if (const SchemaJson* min = part_.schema->Find("minContains"); min != nullptr) {
    ASSIGN_OR_RETURN(contains.min, CountOf("minContains", *min));
  }
  if (const SchemaJson* max = part_.schema->Find("maxContains"); max != nullptr) {
    ASSIGN_OR_RETURN(contains.max, CountOf("maxContains", *max));
  }
  if (contains.min > 0 || contains.max) merged_.contains.push_back(contains);
  return absl::OkStatus();
}

absl::Status SchemaMerger::AddRequired(const SchemaJson& keyword, const SchemaJson& names) {
  const bool valid =
      names.is_array() && std::all_of(names.array().begin(), names.array().end(),
                                      [](const SchemaJson& name) { return name.is_string(); });
  if (!valid) return document_.Error(names, "required must be an array of strings");
  work_.members += static_cast<int64_t>(names.size());
  for (const SchemaJson& name : names.array()) Require(name.string());
  merged_.at.required = &keyword;
  return absl::OkStatus();
}

void SchemaMerger::Require(const std::string& name) {
  if (required_.insert(name).second) merged_.required.push_back(name);
  merged_.opposed.erase(name);
}

}  // namespace lm
