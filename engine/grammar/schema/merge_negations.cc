// What is asked for by the opposite of a schema: that one of its keywords does not hold.
//
// The opposite is taken of what JSON Schema says, not of what is written for it: a closed object, a
// type that keywords imply and a format's narrower texts are choices of ours.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/schema/schema_merger.h"
#include "engine/grammar/string_formats.h"

namespace lm {

absl::Status SchemaMerger::AddNegation(const SchemaPart& part) {
  const SchemaJson& schema = *part.schema;
  part_asks_ = true;
  if (part.asks == SchemaPart::Asks::kNames) return NegateNames(part, schema);
  if (part.keyword < 0) {
    const std::vector<int32_t> asking = Asking(schema);
    std::vector<int32_t> open = asking;
    std::erase_if(open, [&](int32_t keyword) { return HoldsAlready(schema, keyword); });
    if (asking.size() == 1) {
      part_.keyword = asking[0];
    } else if (open.size() == 1 && LeadsNowhere(schema, open[0])) {
      part_.keyword = open[0];
    } else {
      std::vector<Conjunction> alternatives;
      for (int32_t keyword : open) {
        SchemaPart one{&schema, /*negated=*/true};
        one.keyword = keyword;
        alternatives.push_back({one});
      }
      if (alternatives.empty()) {  // the opposite of everything
        merged_.impossible = true;
        merged_.at.no_schema = &schema;
        return absl::OkStatus();
      }
      AddChoice(std::move(alternatives));
      return absl::OkStatus();
    }
  }
  const auto& [name, value] = schema.members()[part_.keyword];
  const KeywordInfo* info = FindKeyword(name);
  if (info->kinds != 0) Keep(info->kinds);
  return Negate(part_, info->keyword, name, value, part_.keyword);
}

bool SchemaMerger::HoldsAlready(const SchemaJson& schema, int32_t number) const {
  const auto& [name, value] = schema.members()[number];
  switch (FindKeyword(name)->keyword) {
    case Keyword::kType: {
      const uint8_t kinds = KindsOfType(value);
      return kinds != 0 && (merged_.kinds & ~kinds) == 0;
    }
    case Keyword::kRequired:
      work_.members += static_cast<int64_t>(value.size());
      return value.is_array() &&
             std::all_of(value.array().begin(), value.array().end(), [this](const SchemaJson& one) {
               return one.is_string() && required_.contains(one.string());
             });
    default:
      return false;
  }
}

bool SchemaMerger::LeadsNowhere(const SchemaJson& schema, int32_t number) const {
  switch (FindKeyword(schema.members()[number].first)->keyword) {
    case Keyword::kRef:
    case Keyword::kNot:
    case Keyword::kAnyOf:
    case Keyword::kAllOf:
      return false;
    default:
      return true;
  }
}

absl::Status SchemaMerger::Negate(const SchemaPart& part, Keyword keyword, const std::string& name,
                                  const SchemaJson& value, int32_t number) {
  switch (keyword) {
    case Keyword::kRef:
    case Keyword::kNot:
    case Keyword::kAnyOf:
      part_asks_ = false;  // what it leads to does
      return absl::OkStatus();
    case Keyword::kAllOf: {
      if (value.is_array() && value.size() == 1) {
        part_asks_ = false;
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(CheckBranches(name, value));
      std::vector<Conjunction> alternatives;
      for (const SchemaJson& branch : value.array()) alternatives.push_back({{&branch, true}});
      AddChoice(std::move(alternatives));
      return absl::OkStatus();
    }
    case Keyword::kOneOf: {
      // None of them, or two.
      RETURN_IF_ERROR(CheckBranches(name, value));
      work_.members += static_cast<int64_t>(value.size() * value.size());
      if (work_.IsTooMuch()) {
        return document_.Error(value, absl::StrCat("too large: the opposite of a oneOf of ",
                                                   value.size(), " branches"));
      }
      std::vector<Conjunction> alternatives(1);
      for (size_t i = 0; i < value.size(); ++i) {
        RETURN_IF_ERROR(Checkpoint());
        alternatives[0].push_back({&value.array()[i], true});
        for (size_t j = 0; j < i; ++j) {
          alternatives.push_back({{&value.array()[j]}, {&value.array()[i]}});
        }
      }
      AddChoice(std::move(alternatives));
      return absl::OkStatus();
    }
    case Keyword::kIf: {
      std::vector<Conjunction> alternatives;
      const SchemaJson* then = part.schema->Find("then");
      const SchemaJson* otherwise = part.schema->Find("else");
      if (then != nullptr) alternatives.push_back({{&value}, {then, true}});
      if (otherwise != nullptr) alternatives.push_back({{&value, true}, {otherwise, true}});
      AddChoice(std::move(alternatives));
      return absl::OkStatus();
    }
    case Keyword::kType: {
      const uint8_t kinds = KindsOfType(value);
      if (kinds == 0) return document_.Error(value, "type must be one that there is");
      Keep(kAllKinds & ~(kinds | (IsTrue("nullable") ? kNull : 0)));
      return absl::OkStatus();
    }
    case Keyword::kEnum:
      if (!value.is_array()) return document_.Error(value, "enum must be an array");
      for (const SchemaJson& one : value.array()) merged_.excluded.push_back(&one);
      return absl::OkStatus();
    case Keyword::kConst:
      merged_.excluded.push_back(&value);
      return absl::OkStatus();
    case Keyword::kMinimum:
      return AddBound(name, value, /*is_lower=*/false, IsTrue("exclusiveMinimum"));
    case Keyword::kMaximum:
      return AddBound(name, value, /*is_lower=*/true, IsTrue("exclusiveMaximum"));
    case Keyword::kExclusiveMinimum:
    case Keyword::kExclusiveMaximum:
      if (value.is_boolean()) {  // draft 4: it alone says nothing
        merged_.impossible = true;
        merged_.at.no_schema = &value;
        return absl::OkStatus();
      }
      return AddBound(name, value, keyword == Keyword::kExclusiveMaximum, true);
    case Keyword::kMinLength:
      return AddMost(name, value, 1, &merged_.max_length, &merged_.at.max_length);
    case Keyword::kMaxLength:
      return AddLeast(name, value, 1, &merged_.min_length, &merged_.at.min_length);
    case Keyword::kPattern:
      return AddText(name, value, &merged_.not_patterns);
    case Keyword::kFormat: {
      const bool is_annotation = value.is_string() && FormatRegex(value.string()).empty() &&
                                 value.string() != "int32" && value.string() != "int64";
      if (is_annotation) {
        merged_.impossible = true;
        merged_.at.no_schema = &value;
      } else {
        Refuse(kAllKinds, value, "the opposite of a format is not supported");
      }
      return absl::OkStatus();
    }
    case Keyword::kMinItems:
      return AddMost(name, value, 1, &merged_.max_items, &merged_.at.max_items);
    case Keyword::kMaxItems:
      return AddLeast(name, value, 1, &merged_.min_items, &merged_.at.min_items);
    case Keyword::kItems:
      if (value.is_array() || part.schema->Has("prefixItems")) break;
      merged_.contains.push_back({SchemaPart{&value, true}, 1, std::nullopt, &value});
      return absl::OkStatus();
    case Keyword::kContains:
      if (part.schema->Has("minContains") || part.schema->Has("maxContains")) break;
      array_.rest = SchemaPart{&value, true};
      return absl::OkStatus();
    case Keyword::kUniqueItems:
      if (!value.is_boolean() || value.boolean()) break;
      merged_.impossible = true;
      merged_.at.no_schema = &value;
      return absl::OkStatus();
    default:
      return NegateOfObjects(part, keyword, name, value, number);
  }
  Refuse(kArray, value, absl::StrCat("the opposite of \"", name, "\" is not supported"));
  return absl::OkStatus();
}

absl::Status SchemaMerger::NegateOfObjects(const SchemaPart& part, Keyword keyword,
                                           const std::string& name, const SchemaJson& value,
                                           int32_t number) {
  auto member_part = [&](size_t i, SchemaPart::Asks asks, bool negated) {
    SchemaPart one{part.schema, negated};
    one.asks = asks;
    one.keyword = number;
    one.member = static_cast<int32_t>(i);
    return one;
  };
  switch (keyword) {
    case Keyword::kMinProperties:
      return AddMost(name, value, 1, &merged_.max_properties, &merged_.at.max_properties);
    case Keyword::kMaxProperties:
      return AddLeast(name, value, 1, &merged_.min_properties, &merged_.at.min_properties);
    case Keyword::kRequired:
      return NegateNames(part, value);
    case Keyword::kProperties: {
      if (!value.is_object()) return document_.Error(value, "properties must be an object");
      if (part.member >= 0 || value.size() == 1) {
        const auto& [property, schema] = value.members()[std::max(part.member, 0)];
        if (required_.insert(property).second) {
          merged_.required.push_back(property);
          merged_.opposed.insert(property);
        }
        merged_.members.push_back({property, SchemaPart{&schema, true}});
        return absl::OkStatus();
      }
      std::vector<Conjunction> alternatives;
      for (size_t i = 0; i < value.size(); ++i) {
        alternatives.push_back({member_part(i, SchemaPart::Asks::kValid, true)});
      }
      if (alternatives.empty()) {
        merged_.impossible = true;
        merged_.at.no_schema = &value;
        return absl::OkStatus();
      }
      AddChoice(std::move(alternatives));
      return absl::OkStatus();
    }
    case Keyword::kDependencies: {
      if (!value.is_object())
        return document_.Error(value, absl::StrCat(name, " must be an object"));
      Keep(kObject);
      std::vector<Conjunction> alternatives;
      for (size_t i = 0; i < value.size(); ++i) {
        SchemaPart broken{&value.members()[i].second, true};
        if (broken.schema->is_array()) broken.asks = SchemaPart::Asks::kNames;
        alternatives.push_back({member_part(i, SchemaPart::Asks::kPresent, false), broken});
      }
      if (alternatives.empty()) {
        merged_.impossible = true;
        merged_.at.no_schema = &value;
        return absl::OkStatus();
      }
      AddChoice(std::move(alternatives));
      return absl::OkStatus();
    }
    default:
      break;
  }
  if (value.is_boolean() && value.boolean()) {  // additionalProperties: true, and the like
    merged_.impossible = true;
    merged_.at.no_schema = &value;
    return absl::OkStatus();
  }
  const KeywordInfo* info = FindKeyword(name);
  Refuse(info->kinds != 0 ? info->kinds : uint8_t{kAllKinds}, value,
         absl::StrCat("the opposite of \"", name, "\" is not supported"));
  return absl::OkStatus();
}

// An object without one of the names.
absl::Status SchemaMerger::NegateNames(const SchemaPart& part, const SchemaJson& names) {
  const bool valid =
      names.is_array() && std::all_of(names.array().begin(), names.array().end(),
                                      [](const SchemaJson& name) { return name.is_string(); });
  if (!valid) return document_.Error(names, "required must be an array of strings");
  work_.members += static_cast<int64_t>(names.size());
  Keep(kObject);
  merged_.at.required = &names;
  if (names.size() == 0) {
    merged_.impossible = true;
    merged_.at.no_schema = &names;
    return absl::OkStatus();
  }
  if (names.size() == 1) {
    merged_.forbidden.push_back(names.array()[0].string());
    return absl::OkStatus();
  }
  std::vector<Conjunction> alternatives;
  for (size_t i = 0; i < names.size(); ++i) {
    SchemaPart lacks{part.schema, true, SchemaPart::Asks::kPresent};
    lacks.keyword = part.asks == SchemaPart::Asks::kNames ? -1 : part.keyword;
    lacks.member = static_cast<int32_t>(i);
    alternatives.push_back({lacks});
  }
  AddChoice(std::move(alternatives));
  return absl::OkStatus();
}

}  // namespace lm
