#include "engine/grammar/schema/schema_validator.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/checkpoint.h"
#include "engine/base/hash_map.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/grammar/number_range.h"
#include "engine/grammar/schema/schema_keywords.h"
#include "engine/grammar/schema/schema_values.h"
#include "engine/grammar/string_formats.h"

namespace lm {
namespace {

// Schemas within each other, for one value: more refer to themselves, or nearly.
constexpr int kDeepest = 120;

size_t CountChars(absl::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

class Validator {
 public:
  Validator(const SchemaDocument& document, SchemaWork* work) : document_(document), work_(*work) {}

  absl::StatusOr<bool> Part(const SchemaPart& part, const SchemaJson& value) {
    ASSIGN_OR_RETURN(const bool holds, Positive(part, value));
    return holds != part.negated;
  }

  absl::StatusOr<bool> PartButSettled(const SchemaPart& part, const SchemaJson& value) {
    if (part.settled == 0) return Part(part, value);
    // The opposite makes one choice, of all that it asks for.
    if (part.negated) return true;
    return Schema(*part.schema, value, part.expanded, part.settled);
  }

 private:
  absl::StatusOr<bool> Positive(const SchemaPart& part, const SchemaJson& value) {
    const SchemaJson& schema = *part.schema;
    if (part.asks == SchemaPart::Asks::kListed) return true;
    if (part.asks == SchemaPart::Asks::kNames) return HasNames(schema, value);
    if (part.keyword < 0) return Schema(schema, value, part.expanded && !part.negated);
    const auto& [name, argument] = schema.members()[part.keyword];
    if (part.member < 0) return Holds(schema, name, argument, value);
    const Json::Member& member = argument.members()[part.member];
    if (part.asks == SchemaPart::Asks::kPresent)
      return value.is_object() && value.Has(member.first);
    const SchemaJson* found = value.is_object() ? value.Find(member.first) : nullptr;
    if (found == nullptr) return true;
    return Schema(member.second, *found);
  }

  // `expanded` and `settled`: see SchemaPart.
  absl::StatusOr<bool> Schema(const SchemaJson& schema, const SchemaJson& value,
                              bool expanded = false, int32_t settled = 0) {
    RETURN_IF_ERROR(Checkpoint());
    if (schema.is_boolean()) return schema.boolean();
    if (!schema.is_object()) {
      return document_.Error(schema, "a schema must be an object or a boolean");
    }
    if (++depth_ > kDeepest) {
      return document_.Error(schema, "a schema that refers to itself");
    }
    work_.members += 1 + static_cast<int64_t>(schema.size());
    bool valid = true;
    const bool only_ref = document_.RefStandsAlone(schema);
    for (const auto& [name, argument] : schema.members()) {
      if (only_ref && name != "$ref") continue;
      const KeywordInfo* info = FindKeyword(name);
      if (expanded && info != nullptr &&
          (info->keyword == Keyword::kRef || info->keyword == Keyword::kAllOf ||
           info->keyword == Keyword::kNot)) {
        continue;
      }
      if (settled > 0) {
        const int32_t choices = ChoicesOf(schema, info, argument);
        settled -= choices;
        if (choices > 0) continue;
      }
      ASSIGN_OR_RETURN(const bool holds, Holds(schema, name, argument, value));
      valid = valid && holds;
      if (!valid) break;
    }
    --depth_;
    return valid;
  }

  // So many of them SchemaMerger makes of a keyword.
  int32_t ChoicesOf(const SchemaJson& schema, const KeywordInfo* info,
                    const SchemaJson& argument) const {
    if (info == nullptr) return 0;
    switch (info->keyword) {
      case Keyword::kAnyOf:
      case Keyword::kOneOf:
        return 1;
      case Keyword::kIf:
        return schema.Has("then") || schema.Has("else") || document_.has_unevaluated();
      case Keyword::kDependencies:
        return static_cast<int32_t>(argument.size());
      default:
        return 0;
    }
  }

  absl::StatusOr<bool> Holds(const SchemaJson& schema, const std::string& name,
                             const SchemaJson& argument, const SchemaJson& value) {
    const KeywordInfo* info = FindKeyword(name);
    if (info == nullptr) return true;
    if (info->keyword == Keyword::kFormat && value.is_number()) {
      return NumberFormatHolds(argument, value);
    }
    if (info->kinds != 0 && (info->kinds & KindOf(value)) == 0) return true;
    switch (info->keyword) {
      case Keyword::kAnnotation:
      case Keyword::kNullable:
      case Keyword::kThen:
      case Keyword::kMinContains:
        return true;
      case Keyword::kRef: {
        if (!argument.is_string()) {
          return document_.Error(argument, absl::StrCat(name, " must be a string"));
        }
        ASSIGN_OR_RETURN(const SchemaJson* target,
                         document_.ResolveBy(name, argument, argument.string()));
        return Schema(*target, value);
      }
      case Keyword::kAllOf:
      case Keyword::kAnyOf:
      case Keyword::kOneOf: {
        ASSIGN_OR_RETURN(const size_t count, CountValid(argument, value));
        if (info->keyword == Keyword::kAllOf) return count == argument.size();
        return info->keyword == Keyword::kOneOf ? count == 1 : count > 0;
      }
      case Keyword::kNot: {
        ASSIGN_OR_RETURN(const bool valid, Schema(argument, value));
        return !valid;
      }
      case Keyword::kIf: {
        ASSIGN_OR_RETURN(const bool valid, Schema(argument, value));
        const SchemaJson* then = schema.Find(valid ? "then" : "else");
        if (then == nullptr) return true;
        return Schema(*then, value);
      }
      case Keyword::kType: {
        const SchemaJson* nullable = schema.Find("nullable");
        const bool or_null = nullable != nullptr && nullable->is_boolean() && nullable->boolean();
        return ((KindsOfType(argument) | (or_null ? kNull : 0)) & KindOf(value)) != 0;
      }
      case Keyword::kEnum:
        if (!argument.is_array()) return document_.Error(argument, "enum must be an array");
        if (const ValueSet* values = document_.EnumOf(argument); values != nullptr) {
          return values->contains(&value);
        }
        work_.members += static_cast<int64_t>(argument.size());
        return std::any_of(argument.array().begin(), argument.array().end(),
                           [&](const SchemaJson& one) { return SameValue(one, value); });
      case Keyword::kConst:
        return SameValue(argument, value);
      default:
        break;
    }
    if (value.is_number()) return NumberHolds(schema, info->keyword, argument, value);
    if (value.is_string()) return StringHolds(info->keyword, name, argument, value.string());
    if (value.is_array()) return ArrayHolds(schema, info->keyword, name, argument, value);
    if (value.is_object()) return ObjectHolds(schema, info->keyword, name, argument, value);
    return true;
  }

  absl::StatusOr<size_t> CountValid(const SchemaJson& branches, const SchemaJson& value) {
    if (!branches.is_array()) return document_.Error(branches, "must be an array of schemas");
    size_t count = 0;
    for (const SchemaJson& branch : branches.array()) {
      ASSIGN_OR_RETURN(const bool valid, Schema(branch, value));
      count += valid;
    }
    return count;
  }

  absl::StatusOr<bool> NumberHolds(const SchemaJson& schema, Keyword keyword,
                                   const SchemaJson& argument, const SchemaJson& value) {
    auto is_true = [&schema](absl::string_view name) {
      const SchemaJson* flag = schema.Find(name);
      return flag != nullptr && flag->is_boolean() && flag->boolean();
    };
    if (argument.is_boolean()) return true;  // draft 4: beside minimum and maximum
    const std::optional<Decimal> number = ParseDecimal(value.Dump());
    const std::optional<Decimal> bound =
        argument.is_number() ? ParseDecimal(argument.Dump()) : std::nullopt;
    if (!number || !bound) return document_.Error(argument, "a number that cannot be compared");
    const int order = Compare(*number, *bound);
    switch (keyword) {
      case Keyword::kMinimum:
        return is_true("exclusiveMinimum") ? order > 0 : order >= 0;
      case Keyword::kMaximum:
        return is_true("exclusiveMaximum") ? order < 0 : order <= 0;
      case Keyword::kExclusiveMinimum:
        return order > 0;
      case Keyword::kExclusiveMaximum:
        return order < 0;
      case Keyword::kMultipleOf: {
        const std::optional<bool> is_multiple = IsMultiple(*number, *bound);
        if (!is_multiple) return document_.Error(argument, "multipleOf of a number too long");
        return *is_multiple;
      }
      default:
        return true;
    }
  }

  absl::StatusOr<bool> NumberFormatHolds(const SchemaJson& argument, const SchemaJson& value) {
    const auto bounds = argument.is_string() ? BoundsOfFormat(argument.string()) : std::nullopt;
    if (!bounds) return true;
    const std::optional<Decimal> number = ParseDecimal(value.Dump());
    if (!number) return document_.Error(argument, "a number that cannot be compared");
    return Compare(bounds->first, *number) <= 0 && Compare(*number, bounds->second) <= 0;
  }

  absl::StatusOr<bool> StringHolds(Keyword keyword, const std::string& name,
                                   const SchemaJson& argument, const std::string& value) {
    switch (keyword) {
      case Keyword::kMinLength:
      case Keyword::kMaxLength: {
        if (!argument.is_number())
          return document_.Error(argument, absl::StrCat(name, " must be a number"));
        const double length = static_cast<double>(CountChars(value));
        return keyword == Keyword::kMinLength ? length >= argument.number()
                                              : length <= argument.number();
      }
      case Keyword::kPattern:
        return Matches(argument, value);
      case Keyword::kFormat: {
        if (!argument.is_string() || FormatRegex(argument.string()).empty()) return true;
        ASSIGN_OR_RETURN(const SharedTextSet texts,
                         work_.texts.OfFormat(FormatRegex(argument.string())));
        if (texts->Contains(value)) return true;
        return document_.Error(
            argument, absl::StrCat("whether a value that is spelled out is of the format \"",
                                   argument.string(), "\" is not known"));
      }
      default:
        return true;
    }
  }

  absl::StatusOr<bool> Matches(const SchemaJson& pattern, const std::string& text) {
    if (!pattern.is_string()) return document_.Error(pattern, "pattern must be a string");
    return MatchesPattern(pattern, pattern.string(), text);
  }

  absl::StatusOr<bool> MatchesPattern(const SchemaJson& where, const std::string& pattern,
                                      const std::string& text) {
    const absl::StatusOr<SharedTextSet> texts = work_.texts.OfPattern(pattern);
    if (absl::IsCancelled(texts.status())) return texts.status();
    if (!texts.ok()) {
      return document_.Error(where, absl::StripPrefix(texts.status().message(), "regex: "));
    }
    work_.members += 1;
    return (*texts)->Contains(text);
  }

  absl::StatusOr<bool> ArrayHolds(const SchemaJson& schema, Keyword keyword,
                                  const std::string& name, const SchemaJson& argument,
                                  const SchemaJson& value) {
    const Json::Array& items = value.array();
    switch (keyword) {
      case Keyword::kMinItems:
        return argument.is_number() && static_cast<double>(items.size()) >= argument.number();
      case Keyword::kMaxItems:
        return argument.is_number() && static_cast<double>(items.size()) <= argument.number();
      case Keyword::kPrefixItems:
        return Prefix(argument, items);
      case Keyword::kItems: {
        if (argument.is_array()) return Prefix(argument, items);
        const SchemaJson* prefix = schema.Find("prefixItems");
        return Rest(argument, items, prefix != nullptr && prefix->is_array() ? prefix->size() : 0);
      }
      case Keyword::kAdditionalItems: {
        const SchemaJson* prefix = schema.Find("items");
        if (prefix == nullptr || !prefix->is_array()) return true;
        return Rest(argument, items, prefix->size());
      }
      case Keyword::kContains: {
        size_t count = 0;
        for (const SchemaJson& item : items) {
          ASSIGN_OR_RETURN(const bool valid, Schema(argument, item));
          count += valid;
        }
        const SchemaJson* min = schema.Find("minContains");
        const SchemaJson* max = schema.Find("maxContains");
        const double least = min != nullptr && min->is_number() ? min->number() : 1;
        if (max != nullptr && max->is_number() && static_cast<double>(count) > max->number()) {
          return false;
        }
        return static_cast<double>(count) >= least;
      }
      case Keyword::kUniqueItems: {
        if (!argument.is_boolean() || !argument.boolean()) return true;
        work_.members += static_cast<int64_t>(items.size());
        ValueSet known;
        return std::all_of(items.begin(), items.end(),
                           [&known](const SchemaJson& item) { return known.insert(&item).second; });
      }
      case Keyword::kUnevaluatedItems: {
        Evaluated evaluated;
        RETURN_IF_ERROR(Collect(schema, value, schema, &evaluated));
        if (evaluated.contains != nullptr) {
          return document_.Error(argument,
                                 "unevaluatedItems where contains speaks is not supported");
        }
        if (evaluated.all_items) return true;
        return Rest(argument, items, evaluated.items);
      }
      default:
        return NotSupported(name, argument);
    }
  }

  // What is evaluated of one value: see merge_unevaluated.cc.
  struct Evaluated {
    bool all_properties = false;
    HashSet<std::string> names;
    bool all_items = false;
    size_t items = 0;
    const SchemaJson* contains = nullptr;
  };

  // Adds what `schema`, against which the value is valid, evaluates, without the rest of which
  // `outer` asks.
  absl::Status Collect(const SchemaJson& schema, const SchemaJson& value, const SchemaJson& outer,
                       Evaluated* evaluated) {
    if (!schema.is_object()) return absl::OkStatus();
    if (++depth_ > kDeepest) return document_.Error(schema, "a schema that refers to itself");
    work_.members += 1 + static_cast<int64_t>(schema.size());
    const bool only_ref = document_.RefStandsAlone(schema);
    for (const auto& [name, argument] : schema.members()) {
      const KeywordInfo* info = FindKeyword(name);
      if (info == nullptr || (only_ref && name != "$ref")) continue;
      std::vector<const SchemaJson*> applied;
      switch (info->keyword) {
        case Keyword::kRef: {
          ASSIGN_OR_RETURN(const SchemaJson* target,
                           document_.ResolveBy(name, argument, argument.string()));
          applied.push_back(target);
          break;
        }
        case Keyword::kAllOf:
        case Keyword::kAnyOf:
        case Keyword::kOneOf:
          for (const SchemaJson& branch : argument.array()) {
            ASSIGN_OR_RETURN(const bool valid, Schema(branch, value));
            if (valid) applied.push_back(&branch);
          }
          break;
        case Keyword::kIf: {
          ASSIGN_OR_RETURN(const bool valid, Schema(argument, value));
          if (valid) applied.push_back(&argument);
          const SchemaJson* follows = schema.Find(valid ? "then" : "else");
          if (follows != nullptr) applied.push_back(follows);
          break;
        }
        case Keyword::kDependencies:
          for (const auto& [key, asked] : argument.members()) {
            if (value.is_object() && value.Has(key)) applied.push_back(&asked);
          }
          break;
        default:
          if (value.is_object()) {
            RETURN_IF_ERROR(
                CollectNames(info->keyword, argument, value, &schema == &outer, evaluated));
          } else if (value.is_array()) {
            CollectItems(info->keyword, schema, argument, &schema == &outer, evaluated);
          }
          break;
      }
      for (const SchemaJson* one : applied) {
        RETURN_IF_ERROR(Collect(*one, value, outer, evaluated));
      }
    }
    --depth_;
    return absl::OkStatus();
  }

  absl::Status CollectNames(Keyword keyword, const SchemaJson& argument, const SchemaJson& value,
                            bool is_outer, Evaluated* evaluated) {
    switch (keyword) {
      case Keyword::kAdditionalProperties:
        evaluated->all_properties = true;
        break;
      case Keyword::kUnevaluatedProperties:
        evaluated->all_properties = evaluated->all_properties || !is_outer;
        break;
      case Keyword::kProperties:
        for (const auto& [name, property] : argument.members()) evaluated->names.insert(name);
        break;
      case Keyword::kPatternProperties:
        for (const auto& [key, member] : value.members()) {
          for (const auto& [pattern, one] : argument.members()) {
            ASSIGN_OR_RETURN(const bool matches, MatchesPattern(one, pattern, key));
            if (matches) evaluated->names.insert(key);
          }
        }
        break;
      default:
        break;
    }
    return absl::OkStatus();
  }

  static void CollectItems(Keyword keyword, const SchemaJson& schema, const SchemaJson& argument,
                           bool is_outer, Evaluated* evaluated) {
    const SchemaJson* items = schema.Find("items");
    const bool items_are_listed = items != nullptr && items->is_array();
    switch (keyword) {
      case Keyword::kPrefixItems:
        evaluated->items = std::max(evaluated->items, argument.size());
        break;
      case Keyword::kItems:
        if (items_are_listed) {
          evaluated->items = std::max(evaluated->items, argument.size());
        } else {
          evaluated->all_items = true;
        }
        break;
      case Keyword::kAdditionalItems:
        evaluated->all_items = evaluated->all_items || items_are_listed;
        break;
      case Keyword::kUnevaluatedItems:
        evaluated->all_items = evaluated->all_items || !is_outer;
        break;
      case Keyword::kContains:
        evaluated->contains = &argument;
        break;
      default:
        break;
    }
  }

  absl::StatusOr<bool> Prefix(const SchemaJson& schemas, const Json::Array& items) {
    if (!schemas.is_array()) return document_.Error(schemas, "prefixItems must be an array");
    for (size_t i = 0; i < std::min(schemas.size(), items.size()); ++i) {
      ASSIGN_OR_RETURN(const bool valid, Schema(schemas.array()[i], items[i]));
      if (!valid) return false;
    }
    return true;
  }

  absl::StatusOr<bool> Rest(const SchemaJson& schema, const Json::Array& items, size_t from) {
    for (size_t i = from; i < items.size(); ++i) {
      ASSIGN_OR_RETURN(const bool valid, Schema(schema, items[i]));
      if (!valid) return false;
    }
    return true;
  }

  absl::StatusOr<bool> HasNames(const SchemaJson& names, const SchemaJson& value) {
    if (!value.is_object()) return true;
    for (const SchemaJson& name : names.array()) {
      if (!name.is_string()) return document_.Error(names, "must be an array of strings");
      if (!value.Has(name.string())) return false;
    }
    return true;
  }

  absl::StatusOr<bool> ObjectHolds(const SchemaJson& schema, Keyword keyword,
                                   const std::string& name, const SchemaJson& argument,
                                   const SchemaJson& value) {
    switch (keyword) {
      case Keyword::kMinProperties:
        return argument.is_number() && static_cast<double>(value.size()) >= argument.number();
      case Keyword::kMaxProperties:
        return argument.is_number() && static_cast<double>(value.size()) <= argument.number();
      case Keyword::kRequired:
        if (!argument.is_array())
          return document_.Error(argument, "required must be an array of strings");
        return HasNames(argument, value);
      case Keyword::kProperties:
      case Keyword::kPatternProperties:
      case Keyword::kAdditionalProperties:
        return MembersHold(schema, keyword, argument, value);
      case Keyword::kPropertyNames:
        for (const auto& [key, member] : value.members()) {
          ASSIGN_OR_RETURN(const bool valid, Schema(argument, SchemaJson(key)));
          if (!valid) return false;
        }
        return true;
      case Keyword::kDependencies:
        if (!argument.is_object())
          return document_.Error(argument, absl::StrCat(name, " must be an object"));
        for (const auto& [key, asked] : argument.members()) {
          if (!value.Has(key)) continue;
          bool holds = false;
          if (asked.is_string()) {
            holds = value.Has(asked.string());
          } else if (asked.is_array()) {
            ASSIGN_OR_RETURN(holds, HasNames(asked, value));
          } else {
            ASSIGN_OR_RETURN(holds, Schema(asked, value));
          }
          if (!holds) return false;
        }
        return true;
      case Keyword::kUnevaluatedProperties: {
        Evaluated evaluated;
        RETURN_IF_ERROR(Collect(schema, value, schema, &evaluated));
        for (const auto& [key, member] : value.members()) {
          if (evaluated.all_properties || evaluated.names.contains(key)) continue;
          ASSIGN_OR_RETURN(const bool valid, Schema(argument, member));
          if (!valid) return false;
        }
        return true;
      }
      default:
        return NotSupported(name, argument);
    }
  }

  absl::StatusOr<bool> MembersHold(const SchemaJson& schema, Keyword keyword,
                                   const SchemaJson& argument, const SchemaJson& value) {
    const SchemaJson* properties = schema.Find("properties");
    const SchemaJson* patterns = schema.Find("patternProperties");
    for (const auto& [key, member] : value.members()) {
      if (keyword == Keyword::kProperties) {
        const SchemaJson* property = argument.Find(key);
        if (property == nullptr) continue;
        ASSIGN_OR_RETURN(const bool valid, Schema(*property, member));
        if (!valid) return false;
        continue;
      }
      bool is_matched = false;
      if (patterns != nullptr && patterns->is_object()) {
        for (const auto& [pattern, one] : patterns->members()) {
          ASSIGN_OR_RETURN(const bool matches, MatchesPattern(one, pattern, key));
          is_matched = is_matched || matches;
          if (!matches || keyword != Keyword::kPatternProperties) continue;
          ASSIGN_OR_RETURN(const bool valid, Schema(one, member));
          if (!valid) return false;
        }
      }
      if (keyword != Keyword::kAdditionalProperties || is_matched) continue;
      if (properties != nullptr && properties->Has(key)) continue;
      ASSIGN_OR_RETURN(const bool valid, Schema(argument, member));
      if (!valid) return false;
    }
    return true;
  }

  absl::Status NotSupported(const std::string& name, const SchemaJson& argument) {
    return document_.Error(argument, absl::StrCat("keyword \"", name, "\" is not supported"));
  }

  const SchemaDocument& document_;
  SchemaWork& work_;
  int depth_ = 0;
};

}  // namespace

absl::StatusOr<bool> IsValid(const SchemaDocument& document, const SchemaPart& part,
                             const SchemaJson& value, SchemaWork* work) {
  return Validator(document, work).Part(part, value);
}

absl::StatusOr<bool> IsValidButSettled(const SchemaDocument& document, const SchemaPart& part,
                                       const SchemaJson& value, SchemaWork* work) {
  return Validator(document, work).PartButSettled(part, value);
}

}  // namespace lm
