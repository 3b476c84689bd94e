#include "engine/grammar/merged_schema.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/hash_map.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/grammar/automaton_builder.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/string_formats.h"

namespace lm {
namespace {

enum class Keyword {
  kAnnotation,
  kUnsupported,
  kExpand,  // $ref and allOf, dealt with before
  kType,
  kNullable,
  kEnum,
  kConst,
  kAnyOf,
  kOneOf,
  kMinimum,
  kMaximum,
  kExclusiveMinimum,
  kExclusiveMaximum,
  kMultipleOf,
  kMinLength,
  kMaxLength,
  kPattern,
  kFormat,
  kItems,
  kPrefixItems,
  kAdditionalItems,
  kMinItems,
  kMaxItems,
  kUniqueItems,
  kProperties,
  kRequired,
  kAdditionalProperties,
  kMinProperties,
  kMaxProperties,
};

struct KeywordInfo {
  Keyword keyword;
  uint8_t kinds;  // what it speaks about; 0: anything, or nothing
};

const HashMap<std::string, KeywordInfo>& Keywords() {
  constexpr uint8_t kNumbers = kInteger | kFraction;
  static const auto& keywords = *new HashMap<std::string, KeywordInfo>({
      {"$ref", {Keyword::kExpand, 0}},
      {"allOf", {Keyword::kExpand, 0}},
      {"type", {Keyword::kType, 0}},
      {"nullable", {Keyword::kNullable, 0}},
      {"enum", {Keyword::kEnum, 0}},
      {"const", {Keyword::kConst, 0}},
      {"anyOf", {Keyword::kAnyOf, 0}},
      {"oneOf", {Keyword::kOneOf, 0}},
      {"minimum", {Keyword::kMinimum, kNumbers}},
      {"maximum", {Keyword::kMaximum, kNumbers}},
      {"exclusiveMinimum", {Keyword::kExclusiveMinimum, kNumbers}},
      {"exclusiveMaximum", {Keyword::kExclusiveMaximum, kNumbers}},
      {"multipleOf", {Keyword::kMultipleOf, kNumbers}},
      {"minLength", {Keyword::kMinLength, kString}},
      {"maxLength", {Keyword::kMaxLength, kString}},
      {"pattern", {Keyword::kPattern, kString}},
      {"format", {Keyword::kFormat, kString}},
      {"items", {Keyword::kItems, kArray}},
      {"prefixItems", {Keyword::kPrefixItems, kArray}},
      {"additionalItems", {Keyword::kAdditionalItems, kArray}},
      {"minItems", {Keyword::kMinItems, kArray}},
      {"maxItems", {Keyword::kMaxItems, kArray}},
      {"uniqueItems", {Keyword::kUniqueItems, kArray}},
      {"properties", {Keyword::kProperties, kObject}},
      {"required", {Keyword::kRequired, kObject}},
      {"additionalProperties", {Keyword::kAdditionalProperties, kObject}},
      {"minProperties", {Keyword::kMinProperties, kObject}},
      {"maxProperties", {Keyword::kMaxProperties, kObject}},
      {"not", {Keyword::kUnsupported, 0}},
      {"if", {Keyword::kUnsupported, 0}},
      {"then", {Keyword::kUnsupported, 0}},
      {"else", {Keyword::kUnsupported, 0}},
      {"dependentRequired", {Keyword::kUnsupported, 0}},
      {"dependentSchemas", {Keyword::kUnsupported, 0}},
      {"dependencies", {Keyword::kUnsupported, 0}},
      {"patternProperties", {Keyword::kUnsupported, 0}},
      {"propertyNames", {Keyword::kUnsupported, 0}},
      {"unevaluatedItems", {Keyword::kUnsupported, 0}},
      {"unevaluatedProperties", {Keyword::kUnsupported, 0}},
      {"contains", {Keyword::kUnsupported, 0}},
      {"minContains", {Keyword::kUnsupported, 0}},
      {"maxContains", {Keyword::kUnsupported, 0}},
      {"$dynamicRef", {Keyword::kUnsupported, 0}},
      {"$recursiveRef", {Keyword::kUnsupported, 0}},
      {"title", {Keyword::kAnnotation, 0}},
      {"description", {Keyword::kAnnotation, 0}},
      {"default", {Keyword::kAnnotation, 0}},
      {"example", {Keyword::kAnnotation, 0}},
      {"examples", {Keyword::kAnnotation, 0}},
      {"deprecated", {Keyword::kAnnotation, 0}},
      {"readOnly", {Keyword::kAnnotation, 0}},
      {"writeOnly", {Keyword::kAnnotation, 0}},
      {"$comment", {Keyword::kAnnotation, 0}},
      {"$schema", {Keyword::kAnnotation, 0}},
      {"$id", {Keyword::kAnnotation, 0}},
      {"id", {Keyword::kAnnotation, 0}},
      {"$anchor", {Keyword::kAnnotation, 0}},
      {"$dynamicAnchor", {Keyword::kAnnotation, 0}},
      {"$vocabulary", {Keyword::kAnnotation, 0}},
      {"$defs", {Keyword::kAnnotation, 0}},
      {"definitions", {Keyword::kAnnotation, 0}},
      {"contentEncoding", {Keyword::kAnnotation, 0}},
      {"contentMediaType", {Keyword::kAnnotation, 0}},
      {"contentSchema", {Keyword::kAnnotation, 0}},
      {"discriminator", {Keyword::kAnnotation, 0}},
      {"externalDocs", {Keyword::kAnnotation, 0}},
      {"xml", {Keyword::kAnnotation, 0}},
  });
  return keywords;
}

std::optional<uint8_t> KindsNamed(absl::string_view type) {
  if (type == "null") return kNull;
  if (type == "boolean") return kBoolean;
  if (type == "integer") return kInteger;
  if (type == "number") return kInteger | kFraction;
  if (type == "string") return kString;
  if (type == "array") return kArray;
  if (type == "object") return kObject;
  return std::nullopt;
}

class Merger {
 public:
  Merger(const SchemaDocument& document, int64_t* work) : document_(document), work_(*work) {}

  absl::StatusOr<MergedSchema> Merge(const Conjunction& conjunction) {
    for (const SchemaPart& part : conjunction) RETURN_IF_ERROR(Expand(part));
    for (const SchemaPart& part : expanded_) RETURN_IF_ERROR(AddPart(part));
    RETURN_IF_ERROR(Conclude());
    return std::move(merged_);
  }

 private:
  // Appends `part`, and before it what its $ref and allOf lead to, to expanded_.
  absl::Status Expand(const SchemaPart& first) {
    struct Open {
      SchemaPart part;
      std::vector<const SchemaJson*> targets;
      size_t followed = 0;
    };
    std::vector<Open> path;
    HashSet<const SchemaJson*> on_path;
    auto open = [&](const SchemaPart& part) -> absl::Status {
      if (!on_path.insert(part.schema).second) {
        return document_.Error(*part.schema, "a schema that refers to itself");
      }
      path.push_back({part, {}});
      ASSIGN_OR_RETURN(path.back().targets, TargetsOf(*part.schema));
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(open(first));
    while (!path.empty()) {
      Open& top = path.back();
      if (top.followed < top.targets.size()) {
        const SchemaJson* target = top.targets[top.followed++];
        const bool done = seen_.contains({target}) && !on_path.contains(target);
        if (!done) RETURN_IF_ERROR(open({target}));
        continue;
      }
      if (seen_.insert(top.part).second) expanded_.push_back(top.part);
      on_path.erase(top.part.schema);
      path.pop_back();
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<const SchemaJson*>> TargetsOf(const SchemaJson& schema) {
    std::vector<const SchemaJson*> targets;
    if (!schema.is_object()) return targets;
    work_ += 1 + static_cast<int64_t>(schema.size());
    if (const SchemaJson* ref = schema.Find("$ref"); ref != nullptr) {
      if (!ref->is_string()) return document_.Error(*ref, "$ref must be a string");
      ASSIGN_OR_RETURN(const SchemaJson* target, document_.Resolve(*ref, ref->string()));
      targets.push_back(target);
    }
    if (const SchemaJson* all = schema.Find("allOf"); all != nullptr) {
      RETURN_IF_ERROR(CheckBranches("allOf", *all));
      for (const SchemaJson& member : all->array()) targets.push_back(&member);
    }
    return targets;
  }

  absl::Status CheckBranches(absl::string_view keyword, const SchemaJson& branches) {
    if (branches.is_array() && branches.size() > 0) return absl::OkStatus();
    return document_.Error(branches,
                           absl::StrCat(keyword, " must be an array of at least one schema"));
  }

  absl::Status AddPart(const SchemaPart& part) {
    const SchemaJson& schema = *part.schema;
    if (schema.is_boolean()) {
      merged_.impossible = merged_.impossible || !schema.boolean();
      if (!schema.boolean()) merged_.parts.push_back(part);
      if (!schema.boolean()) merged_.at.no_schema = &schema;
      return absl::OkStatus();
    }
    if (!schema.is_object())
      return document_.Error(schema, "a schema must be an object or a boolean");
    work_ += 1 + static_cast<int64_t>(schema.size());
    part_ = part;
    array_ = {};
    object_ = {};
    part_index_ = merged_.parts.size();
    part_asks_ = false;
    nullable_ = false;
    part_kinds_ = kAllKinds;
    for (const auto& [name, value] : schema.members()) {
      RETURN_IF_ERROR(AddKeyword(name, value));
    }
    if (nullable_ && part_kinds_ != kAllKinds) part_kinds_ |= kNull;
    if (merged_.kinds != 0 && (merged_.kinds & part_kinds_) == 0) {
      merged_.at.other_type = merged_.at.type;
    }
    if ((merged_.kinds & ~part_kinds_) != 0) merged_.at.type = schema.Find("type");
    merged_.kinds &= part_kinds_;
    if (array_.prefix != nullptr || array_.rest != nullptr) merged_.arrays.push_back(array_);
    if (object_.properties != nullptr || object_.additional != nullptr) {
      merged_.objects.push_back(object_);
    }
    if (part_asks_) merged_.parts.push_back(part);
    return absl::OkStatus();
  }

  absl::Status AddKeyword(const std::string& name, const SchemaJson& value) {
    auto known = Keywords().find(name);
    if (known == Keywords().end()) {
      if (absl::StartsWith(name, "x-")) return absl::OkStatus();
      return document_.Error(
          value,
          absl::StrCat("keyword \"", absl::CHexEscape(name.substr(0, 100)), "\" is not known"));
    }
    const auto [keyword, kinds] = known->second;
    if (keyword == Keyword::kUnsupported) {
      return document_.Error(value, absl::StrCat("keyword \"", name, "\" is not supported"));
    }
    if (keyword == Keyword::kAnnotation || keyword == Keyword::kExpand) return absl::OkStatus();
    const bool is_settled = (keyword == Keyword::kAnyOf && part_.any_of_settled) ||
                            (keyword == Keyword::kOneOf && part_.one_of_settled);
    if (is_settled) return absl::OkStatus();
    part_asks_ = true;
    if (kinds != 0) {
      implied_kinds_ |= kinds;
      asserted_ = &value;
      asserted_name_ = name;
    }
    return Apply(keyword, name, value);
  }

  absl::Status Apply(Keyword keyword, const std::string& name, const SchemaJson& value) {
    switch (keyword) {
      case Keyword::kType:
        return AddType(value);
      case Keyword::kNullable:
        if (!value.is_boolean()) return document_.Error(value, "nullable must be a boolean");
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
        const bool is_one_of = keyword == Keyword::kOneOf;
        RETURN_IF_ERROR(CheckBranches(name, value));
        merged_.choices.push_back({part_index_, is_one_of, &value});
        return absl::OkStatus();
      }
      case Keyword::kMinimum:
        return AddBound(name, value, /*is_lower=*/true, true);
      case Keyword::kMaximum:
        return AddBound(name, value, /*is_lower=*/false, true);
      case Keyword::kExclusiveMinimum:
        return AddBound(name, value, /*is_lower=*/true, false);
      case Keyword::kExclusiveMaximum:
        return AddBound(name, value, /*is_lower=*/false, false);
      case Keyword::kMultipleOf:
        return AddMultiple(value);
      case Keyword::kMinLength:
        return AddLeast(name, value, &merged_.min_length, &merged_.at.min_length);
      case Keyword::kMaxLength:
        return AddMost(name, value, &merged_.max_length, &merged_.at.max_length);
      case Keyword::kPattern:
        return AddText(name, value, &merged_.pattern);
      case Keyword::kFormat:
        return AddFormat(name, value);
      case Keyword::kPrefixItems:
        if (!value.is_array()) return document_.Error(value, "prefixItems must be an array");
        array_.prefix = &value;
        return absl::OkStatus();
      case Keyword::kItems:
        (value.is_array() ? array_.prefix : array_.rest) = &value;
        return absl::OkStatus();
      case Keyword::kAdditionalItems:
        // Speaks only where `items` is an array.
        if (const SchemaJson* items = part_.schema->Find("items");
            items != nullptr && items->is_array()) {
          array_.rest = &value;
        }
        return absl::OkStatus();
      case Keyword::kMinItems:
        return AddLeast(name, value, &merged_.min_items, &merged_.at.min_items);
      case Keyword::kMaxItems:
        return AddMost(name, value, &merged_.max_items, &merged_.at.max_items);
      case Keyword::kUniqueItems:
        if (value.is_boolean() && !value.boolean()) return absl::OkStatus();
        return document_.Error(value, "keyword \"uniqueItems\" is not supported");
      case Keyword::kProperties:
        if (!value.is_object()) return document_.Error(value, "properties must be an object");
        work_ += static_cast<int64_t>(value.size());
        object_.properties = &value;
        return absl::OkStatus();
      case Keyword::kAdditionalProperties:
        object_.additional = &value;
        return absl::OkStatus();
      case Keyword::kRequired:
        return AddRequired(value);
      case Keyword::kMinProperties:
        return AddLeast(name, value, &merged_.min_properties, &merged_.at.min_properties);
      case Keyword::kMaxProperties:
        return AddMost(name, value, &merged_.max_properties, &merged_.at.max_properties);
      default:
        return absl::OkStatus();
    }
  }

  absl::Status AddType(const SchemaJson& value) {
    uint8_t kinds = 0;
    auto add = [&](const SchemaJson& type) {
      std::optional<uint8_t> named;
      if (type.is_string()) named = KindsNamed(type.string());
      kinds |= named.value_or(0);
      return named.has_value();
    };
    bool valid = value.is_array() ? value.size() > 0 : add(value);
    if (value.is_array()) {
      for (const SchemaJson& type : value.array()) valid = valid && add(type);
    }
    if (!valid) {
      return document_.Error(value,
                             "type must be null, boolean, integer, number, string, array, object, "
                             "or an array of those");
    }
    has_type_ = true;
    part_kinds_ &= kinds;
    return absl::OkStatus();
  }

  // Keeps what is in both, if there were values already.
  void AddValues(const SchemaJson& keyword, const std::vector<const SchemaJson*>& values) {
    if (!merged_.values) {
      merged_.values = values;
      merged_.at.values = &keyword;
      return;
    }
    const bool had_some = !merged_.values->empty();
    std::vector<const SchemaJson*> both;
    for (const SchemaJson* old : *merged_.values) {
      work_ += static_cast<int64_t>(values.size());
      const bool kept = std::any_of(values.begin(), values.end(),
                                    [old](const SchemaJson* value) { return *old == *value; });
      if (kept) both.push_back(old);
    }
    merged_.values = std::move(both);
    if (had_some && merged_.values->empty()) merged_.at.other_values = &keyword;
  }

  absl::StatusOr<Decimal> NumberOf(absl::string_view name, const SchemaJson& value) {
    if (!value.is_number()) {
      return document_.Error(value, absl::StrCat(name, " must be a number"));
    }
    std::optional<Decimal> decimal = ParseDecimal(value.Dump());
    if (!decimal) return document_.Error(value, absl::StrCat(name, " has too great an exponent"));
    return *std::move(decimal);
  }

  absl::Status AddBound(absl::string_view name, const SchemaJson& value, bool is_lower,
                        bool inclusive) {
    ASSIGN_OR_RETURN(Decimal decimal, NumberOf(name, value));
    Tighten(value, is_lower, {std::move(decimal), inclusive});
    return absl::OkStatus();
  }

  void Tighten(const SchemaJson& value, bool is_lower, NumberBound other) {
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

  absl::Status AddMultiple(const SchemaJson& value) {
    constexpr int kMaxMultiple = 256;
    ASSIGN_OR_RETURN(const Decimal step, NumberOf("multipleOf", value));
    NumberRange& numbers = merged_.numbers;
    merged_.limits_numbers = true;
    merged_.at.multiple_of = &value;
    const bool is_whole = step.fraction.empty() && step.whole.size() <= 3 && !step.negative &&
                          step.whole != "0" && std::stoi(step.whole) <= kMaxMultiple;
    const bool is_power = step.whole == "0" && !step.fraction.empty() && !step.negative &&
                          step.fraction.size() <= kMaxFractionDigits &&
                          step.fraction == std::string(step.fraction.size() - 1, '0') + "1";
    if (is_power) {
      numbers.max_fraction_digits =
          std::min(numbers.max_fraction_digits, static_cast<int>(step.fraction.size()));
      return absl::OkStatus();
    }
    const int multiple = is_whole ? std::stoi(step.whole) : 0;
    if (!is_whole || (numbers.multiple_of != 1 && numbers.multiple_of != multiple)) {
      return document_.Error(value, absl::StrCat("multipleOf is supported for one whole number to ",
                                                 kMaxMultiple, ", or 0.1, 0.01, ..."));
    }
    numbers.multiple_of = multiple;
    numbers.max_fraction_digits = 0;
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> CountOf(absl::string_view name, const SchemaJson& value) {
    const bool is_whole = value.is_unsigned() || (value.is_float() && value.number() >= 0 &&
                                                  value.number() == std::floor(value.number()));
    if (!is_whole) {
      return document_.Error(value, absl::StrCat(name, " must be a whole number, not negative"));
    }
    return static_cast<int64_t>(std::min<double>(value.number(), 1e15));
  }

  absl::Status AddLeast(absl::string_view name, const SchemaJson& value, int64_t* least,
                        const SchemaJson** at) {
    ASSIGN_OR_RETURN(const int64_t count, CountOf(name, value));
    if (count > kMaxRepeat) {
      return document_.Error(value, absl::StrCat(name, " is too large, limit ", kMaxRepeat));
    }
    if (count > *least) *at = &value;
    *least = std::max(*least, count);
    return absl::OkStatus();
  }

  // Beyond kMaxRepeat it makes no difference to what a model writes.
  absl::Status AddMost(absl::string_view name, const SchemaJson& value,
                       std::optional<int64_t>* most, const SchemaJson** at) {
    ASSIGN_OR_RETURN(const int64_t count, CountOf(name, value));
    if (!*most || count < **most) *at = &value;
    *most = std::min({count, most->value_or(kMaxRepeat), kMaxRepeat});
    return absl::OkStatus();
  }

  absl::Status AddText(absl::string_view name, const SchemaJson& value, const SchemaJson** text) {
    if (!value.is_string()) return document_.Error(value, absl::StrCat(name, " must be a string"));
    if (*text != nullptr && **text != value) {
      return document_.Error(value, absl::StrCat("a second ", name, " for the same string"));
    }
    *text = &value;
    return absl::OkStatus();
  }

  absl::Status AddFormat(absl::string_view name, const SchemaJson& value) {
    if (!value.is_string()) return document_.Error(value, "format must be a string");
    const std::string& format = value.string();
    // OpenAPI's formats of numbers.
    if (format == "float" || format == "double") return absl::OkStatus();
    if (format == "int32" || format == "int64") {
      const bool is_short = format == "int32";
      Tighten(value, true,
              {*ParseDecimal(is_short ? "-2147483648" : "-9223372036854775808"), true});
      Tighten(value, false, {*ParseDecimal(is_short ? "2147483647" : "9223372036854775807"), true});
      return absl::OkStatus();
    }
    if (FormatRegex(format).empty()) {
      return document_.Error(value,
                             absl::StrCat("format \"", absl::CHexEscape(format.substr(0, 100)),
                                          "\" is not known; there are ", FormatNames()));
    }
    return AddText(name, value, &merged_.format);
  }

  absl::Status AddRequired(const SchemaJson& value) {
    bool valid = value.is_array();
    if (valid) {
      for (const SchemaJson& name : value.array()) {
        valid = valid && name.is_string();
        if (!valid) break;
        const std::string& text = name.string();
        if (required_.insert(text).second) merged_.required.push_back(text);
      }
    }
    if (!valid) return document_.Error(value, "required must be an array of strings");
    merged_.at.required = &value;
    return absl::OkStatus();
  }

  // Once all parts are known.
  absl::Status Conclude() {
    if (!has_type_ && !merged_.values && implied_kinds_ != 0 && merged_.choices.empty()) {
      merged_.kinds &= implied_kinds_;
    }
    if (!merged_.values || !merged_.choices.empty()) return absl::OkStatus();
    if (asserted_ != nullptr) {
      return document_.Error(*asserted_, absl::StrCat(asserted_name_,
                                                      " beside enum or const is not "
                                                      "supported: list the values that fit"));
    }
    auto& values = *merged_.values;
    values.erase(std::remove_if(values.begin(), values.end(),
                                [this](const SchemaJson* value) {
                                  return (KindOf(*value) & merged_.kinds) == 0;
                                }),
                 values.end());
    return absl::OkStatus();
  }

  const SchemaDocument& document_;
  int64_t& work_;
  MergedSchema merged_;
  Conjunction expanded_;
  HashSet<SchemaPart> seen_;
  HashSet<std::string> required_;
  bool has_type_ = false;
  uint8_t implied_kinds_ = 0;
  const SchemaJson* asserted_ = nullptr;  // some keyword that speaks about one kind of values
  std::string asserted_name_;

  // Of the part that is being added.
  SchemaPart part_{nullptr};
  size_t part_index_ = 0;
  bool part_asks_ = false;
  bool nullable_ = false;
  uint8_t part_kinds_ = kAllKinds;
  MergedSchema::ArrayPart array_;
  MergedSchema::ObjectPart object_;
};

}  // namespace

bool IsSchemaKeyword(absl::string_view name) { return Keywords().contains(name); }

uint8_t KindOf(const SchemaJson& value) {
  if (value.is_null()) return kNull;
  if (value.is_boolean()) return kBoolean;
  if (value.is_float()) {
    const double number = value.number();
    return number == std::floor(number) ? kInteger : kFraction;
  }
  if (value.is_number()) return kInteger;
  if (value.is_string()) return kString;
  return value.is_array() ? kArray : kObject;
}

absl::StatusOr<MergedSchema> Merge(const SchemaDocument& document, const Conjunction& conjunction,
                                   int64_t* work) {
  return Merger(document, work).Merge(conjunction);
}

}  // namespace lm
