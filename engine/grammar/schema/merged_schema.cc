#include "engine/grammar/schema/merged_schema.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/schema/schema_merger.h"
#include "engine/grammar/schema/schema_validator.h"

namespace lm {

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
                                   SchemaWork* work) {
  return SchemaMerger(document, work).Merge(conjunction);
}

absl::StatusOr<MergedSchema> MergeToTellApart(const SchemaDocument& document,
                                              const Conjunction& conjunction, SchemaWork* work) {
  SchemaMerger merger(document, work);
  merger.ToTellApart();
  return merger.Merge(conjunction);
}

bool MergedSchema::ObjectPart::Lists(const std::string& name) const {
  return (properties != nullptr && properties->Has(name)) ||
         std::any_of(other_properties.begin(), other_properties.end(),
                     [&name](const SchemaJson* listed) { return listed->Has(name); });
}

absl::StatusOr<MergedSchema> SchemaMerger::Merge(const Conjunction& conjunction) {
  RETURN_IF_ERROR(Checkpoint());
  for (const SchemaPart& part : conjunction) RETURN_IF_ERROR(Expand(part));
  asks_what_is_unevaluated_ =
      document_.has_unevaluated() &&
      std::any_of(expanded_.begin(), expanded_.end(), [](const SchemaPart& part) {
        return !part.negated && part.schema->is_object() &&
               (part.schema->Has("unevaluatedProperties") || part.schema->Has("unevaluatedItems"));
      });
  for (const SchemaPart& part : expanded_) RETURN_IF_ERROR(AddPart(part));
  RETURN_IF_ERROR(Conclude());
  return std::move(merged_);
}

absl::Status SchemaMerger::Expand(const SchemaPart& first) {
  struct Open {
    SchemaPart part;
    Conjunction targets;
    size_t followed = 0;
  };
  std::vector<Open> path;
  HashSet<SchemaPart> on_path;
  auto open = [&](const SchemaPart& part) -> absl::Status {
    if (!on_path.insert(part).second) {
      return document_.Error(*part.schema, "a schema that refers to itself");
    }
    path.push_back({part, {}});
    ASSIGN_OR_RETURN(path.back().targets, TargetsOf(part));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(open(first));
  while (!path.empty()) {
    Open& top = path.back();
    if (top.followed < top.targets.size()) {
      const SchemaPart target = top.targets[top.followed++];
      const bool done = seen_.contains(target) && !on_path.contains(target);
      if (!done) RETURN_IF_ERROR(open(target));
      continue;
    }
    if (seen_.insert(top.part).second) expanded_.push_back(top.part);
    on_path.erase(top.part);
    path.pop_back();
  }
  return absl::OkStatus();
}

std::vector<int32_t> SchemaMerger::Asking(const SchemaJson& schema) const {
  std::vector<int32_t> asking;
  const bool only_ref = document_.RefStandsAlone(schema);
  for (size_t i = 0; i < schema.size(); ++i) {
    const auto& [name, value] = schema.members()[i];
    const KeywordInfo* info = FindKeyword(name);
    if (info == nullptr || (only_ref && name != "$ref")) continue;
    switch (info->keyword) {
      case Keyword::kAnnotation:
      case Keyword::kNullable:
      case Keyword::kThen:
      case Keyword::kMinContains:
        continue;
      case Keyword::kIf:
        if (!schema.Has("then") && !schema.Has("else")) continue;
        break;
      default:
        break;
    }
    asking.push_back(static_cast<int32_t>(i));
  }
  return asking;
}

absl::StatusOr<Conjunction> SchemaMerger::TargetsOf(const SchemaPart& part) {
  const SchemaJson& schema = *part.schema;
  if (!schema.is_object() || part.asks != SchemaPart::Asks::kValid || part.member >= 0 ||
      part.expanded) {
    return Conjunction();
  }
  work_.members += 1 + static_cast<int64_t>(schema.size());
  if (part.keyword >= 0) return TargetsOfKeyword(part, part.keyword);
  const std::vector<int32_t> asking = Asking(schema);
  // "Not all of these" leads somewhere only if it is of one.
  if (part.negated && asking.size() != 1) return Conjunction();
  Conjunction targets;
  for (int32_t keyword : asking) {
    ASSIGN_OR_RETURN(const Conjunction more, TargetsOfKeyword(part, keyword));
    targets.insert(targets.end(), more.begin(), more.end());
  }
  return targets;
}

absl::StatusOr<Conjunction> SchemaMerger::TargetsOfKeyword(const SchemaPart& part,
                                                           int32_t keyword) {
  const auto& [name, value] = part.schema->members()[keyword];
  const KeywordInfo* info = FindKeyword(name);
  Conjunction targets;
  if (info->keyword == Keyword::kRef) {
    if (!value.is_string()) return document_.Error(value, absl::StrCat(name, " must be a string"));
    ASSIGN_OR_RETURN(const SchemaJson* target, document_.ResolveBy(name, value, value.string()));
    targets.push_back({target, part.negated});
  } else if (info->keyword == Keyword::kNot) {
    targets.push_back({&value, !part.negated});
  } else if (info->keyword == (part.negated ? Keyword::kAnyOf : Keyword::kAllOf) ||
             (part.negated && info->keyword == Keyword::kAllOf && value.size() == 1)) {
    RETURN_IF_ERROR(CheckBranches(name, value));
    for (const SchemaJson& branch : value.array()) targets.push_back({&branch, part.negated});
  }
  return targets;
}

absl::Status SchemaMerger::CheckBranches(absl::string_view keyword, const SchemaJson& branches) {
  if (branches.is_array() && branches.size() > 0) return absl::OkStatus();
  return document_.Error(branches,
                         absl::StrCat(keyword, " must be an array of at least one schema"));
}

absl::Status SchemaMerger::AddPart(const SchemaPart& part) {
  const SchemaJson& schema = *part.schema;
  if (schema.is_boolean()) {
    if (schema.boolean() != part.negated) return absl::OkStatus();
    merged_.impossible = true;
    merged_.parts.push_back(part);
    merged_.at.no_schema = &schema;
    return absl::OkStatus();
  }
  const bool names_only = part.asks == SchemaPart::Asks::kNames;
  if (!schema.is_object() && part.asks == SchemaPart::Asks::kValid) {
    return document_.Error(schema, "a schema must be an object or a boolean");
  }
  work_.members += 1 + static_cast<int64_t>(schema.size());
  part_ = part;
  array_ = {};
  object_ = {};
  part_index_ = merged_.parts.size();
  part_choices_ = 0;
  part_asks_ = false;
  nullable_ = false;
  part_kinds_ = kAllKinds;
  if (part.asks == SchemaPart::Asks::kListed) {
    part_asks_ = true;
    merged_.only_listed = true;
  } else if (part.asks == SchemaPart::Asks::kPresent) {
    RETURN_IF_ERROR(AddPresence(part));
  } else if (part.negated) {
    RETURN_IF_ERROR(AddNegation(part));
  } else if (names_only) {
    part_asks_ = true;
    RETURN_IF_ERROR(AddRequired(schema, schema));
  } else {
    for (size_t i = 0; i < schema.size(); ++i) {
      RETURN_IF_ERROR(AddKeyword(static_cast<int32_t>(i)));
    }
    // What holds matters to what is unevaluated.
    if (document_.has_unevaluated() && !Asking(schema).empty()) part_asks_ = true;
  }
  if (nullable_ && part_kinds_ != kAllKinds) part_kinds_ |= kNull;
  if (merged_.kinds != 0 && (merged_.kinds & part_kinds_) == 0) {
    merged_.at.other_type = merged_.at.type;
  }
  if ((merged_.kinds & ~part_kinds_) != 0) {
    const SchemaJson* type = schema.Find("type");
    merged_.at.type = type != nullptr ? type : &schema;
  }
  merged_.kinds &= part_kinds_;
  if (array_.prefix != nullptr || array_.rest) merged_.arrays.push_back(array_);
  if (object_.properties != nullptr || object_.additional != nullptr ||
      object_.patterns != nullptr) {
    merged_.objects.push_back(object_);
  }
  if (!part_asks_) return absl::OkStatus();
  merged_.parts.push_back(part);
  merged_.parts.back().expanded = true;
  return absl::OkStatus();
}

void SchemaMerger::AddChoice(std::vector<Conjunction> alternatives, const SchemaJson* one_of) {
  if (part_choices_++ < part_.settled) return;
  merged_.choices.push_back({part_index_, std::move(alternatives), one_of});
}

void SchemaMerger::Refuse(uint8_t kinds, const SchemaJson& value, absl::string_view what) {
  merged_.refusals.push_back({kinds, document_.Error(value, what)});
}

absl::Status SchemaMerger::Conclude() {
  if (merged_.impossible) return absl::OkStatus();
  if (merged_.values) {
    // Whatever else is asked for, each value has it or has not.
    auto& values = *merged_.values;
    std::vector<const SchemaJson*> valid;
    const int64_t before = work_.members;
    for (const SchemaJson* value : values) {
      if (work_.IsTooMuch() && work_.members - before > kMaxSchemaWork / 2) {
        return document_.Error(
            *merged_.at.values,
            absl::StrCat("too large: ", values.size(), " values, each checked against ",
                         merged_.parts.size(), " schemas, limit ", kMaxSchemaWork,
                         " members of schemas looked at for all values and combinations"));
      }
      bool fits = (KindOf(*value) & merged_.kinds) != 0;
      for (const SchemaPart& part : merged_.parts) {
        if (!fits) break;
        ASSIGN_OR_RETURN(fits, is_to_tell_apart_
                                   ? IsValidButSettled(document_, part, *value, &work_)
                                   : IsValid(document_, part, *value, &work_));
      }
      if (fits) valid.push_back(value);
    }
    values = std::move(valid);
    merged_.choices.clear();
    return absl::OkStatus();
  }
  if (merged_.choices.empty() && !unevaluated_.empty() && !is_to_tell_apart_) {
    RETURN_IF_ERROR(AddUnevaluated());
  }
  if (!has_type_ && implied_kinds_ != 0 && merged_.choices.empty() &&
      !document_.options().additional) {
    merged_.implied_kinds = implied_kinds_;
  }
  const uint8_t written = merged_.kinds & merged_.implied_kinds;
  if (!is_to_tell_apart_) merged_.kinds = written;
  for (const MergedSchema::Refusal& refusal : merged_.refusals) {
    if (merged_.choices.empty() && (written & refusal.kinds) != 0) return refusal.status;
  }
  return absl::OkStatus();
}

}  // namespace lm
