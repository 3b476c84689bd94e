// The work of Merge: merged_schema.cc puts parts together, merge_keywords.cc adds what a keyword
// asks for, merge_negations.cc the opposite, merge_unevaluated.cc what is asked of the rest.
#ifndef LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_MERGER_H_
#define LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_MERGER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/hash_map.h"
#include "engine/grammar/schema/merged_schema.h"
#include "engine/grammar/schema/schema_keywords.h"

namespace lm {

// For one call of Merge.
class SchemaMerger {
 public:
  SchemaMerger(const SchemaDocument& document, SchemaWork* work)
      : document_(document), work_(*work) {}
  // See MergeToTellApart.
  void ToTellApart() { is_to_tell_apart_ = true; }

  absl::StatusOr<MergedSchema> Merge(const Conjunction& conjunction);

 private:
  // Appends `part`, and before it what it leads to ($ref, allOf, not), to expanded_.
  absl::Status Expand(const SchemaPart& first);
  absl::StatusOr<Conjunction> TargetsOf(const SchemaPart& part);
  absl::StatusOr<Conjunction> TargetsOfKeyword(const SchemaPart& part, int32_t keyword);
  // The keywords of a schema that say something about values, by their numbers.
  std::vector<int32_t> Asking(const SchemaJson& schema) const;
  absl::Status AddPart(const SchemaPart& part);
  // Once all parts are known.
  absl::Status Conclude();

  absl::Status AddKeyword(int32_t number);
  absl::Status Apply(const KeywordInfo& info, const std::string& name, const SchemaJson& value,
                     int32_t keyword);
  absl::Status ApplyToArrays(Keyword keyword, const std::string& name, const SchemaJson& value);
  absl::Status ApplyToObjects(Keyword keyword, const std::string& name, const SchemaJson& value,
                              int32_t number);
  absl::Status AddNegation(const SchemaPart& part);
  // The parts that were added ask for what this keyword does, so that its opposite is nothing.
  bool HoldsAlready(const SchemaJson& schema, int32_t number) const;
  // Not to parts that Expand adds for the opposite of this keyword.
  bool LeadsNowhere(const SchemaJson& schema, int32_t number) const;
  absl::Status Negate(const SchemaPart& part, Keyword keyword, const std::string& name,
                      const SchemaJson& value, int32_t number);
  absl::Status NegateOfObjects(const SchemaPart& part, Keyword keyword, const std::string& name,
                               const SchemaJson& value, int32_t number);
  absl::Status NegateNames(const SchemaPart& part, const SchemaJson& names);
  absl::Status AddPresence(const SchemaPart& part);

  // unevaluatedProperties or unevaluatedItems of a schema.
  struct Unevaluated {
    const SchemaJson* schema;
    const SchemaJson* value;
    Keyword keyword;
  };
  // What a schema, and what it leads to, evaluates of the values that are valid against all parts.
  struct Evaluated {
    bool all_properties = false;
    std::vector<const SchemaJson*> properties;  // objects of schemas
    std::vector<const SchemaJson*> patterns;
    bool all_items = false;
    size_t items = 0;                      // the first
    const SchemaJson* contains = nullptr;  // evaluates items that it matches
  };
  // Once all choices are settled.
  absl::Status AddUnevaluated();
  absl::StatusOr<Evaluated> EvaluatedBy(const Unevaluated& unevaluated) const;
  // The schemas that are applied to the value itself, and are known to be valid.
  absl::Status AddApplied(const SchemaJson& schema, std::vector<const SchemaJson*>* applied) const;
  // That the value is valid (or not) against this schema is one of the parts.
  bool Holds(const SchemaJson& schema, bool negated = false) const;
  // Every set of an anyOf's branches, which may all be valid.
  std::vector<Conjunction> Subsets(const SchemaJson& branches) const;
  // ... of so many branches at most. Of more, one at a time: fewer texts, all of them valid.
  static constexpr size_t kMostTogether = 5;

  // One of these, unless the part has settled that.
  void AddChoice(std::vector<Conjunction> alternatives, const SchemaJson* one_of = nullptr);
  // Only values of these kinds.
  void Keep(uint8_t kinds) { part_kinds_ &= kinds; }
  void Refuse(uint8_t kinds, const SchemaJson& value, absl::string_view what);
  bool IsTrue(absl::string_view keyword) const;  // of the part's schema

  absl::Status CheckBranches(absl::string_view keyword, const SchemaJson& branches);
  absl::Status AddType(const SchemaJson& value);
  void AddValues(const SchemaJson& keyword, const std::vector<const SchemaJson*>& values);
  absl::StatusOr<Decimal> NumberOf(absl::string_view name, const SchemaJson& value);
  absl::Status AddBound(absl::string_view name, const SchemaJson& value, bool is_lower,
                        bool inclusive);
  void Tighten(const SchemaJson& value, bool is_lower, NumberBound other);
  absl::Status AddMultiple(const SchemaJson& value);
  absl::StatusOr<int64_t> CountOf(absl::string_view name, const SchemaJson& value);
  absl::Status AddLeast(absl::string_view name, const SchemaJson& value, int64_t more,
                        int64_t* least, const SchemaJson** at);
  absl::Status AddMost(absl::string_view name, const SchemaJson& value, int64_t less,
                       std::optional<int64_t>* most, const SchemaJson** at);
  absl::Status AddText(absl::string_view name, const SchemaJson& value,
                       std::vector<const SchemaJson*>* texts);
  absl::Status AddFormat(const SchemaJson& value);
  absl::Status AddContains(const SchemaJson& value);
  absl::Status AddRequired(const SchemaJson& keyword, const SchemaJson& names);
  void Require(const std::string& name);

  const SchemaDocument& document_;
  SchemaWork& work_;
  MergedSchema merged_;
  Conjunction expanded_;
  HashSet<SchemaPart> seen_;
  HashSet<std::string> required_;
  bool has_type_ = false;
  uint8_t implied_kinds_ = 0;
  std::vector<Unevaluated> unevaluated_;
  bool asks_what_is_unevaluated_ = false;  // a part does
  bool is_to_tell_apart_ = false;

  // Of the part that is being added.
  SchemaPart part_{nullptr};
  size_t part_index_ = 0;
  int32_t part_choices_ = 0;  // so many were met
  bool part_asks_ = false;
  bool nullable_ = false;
  uint8_t part_kinds_ = kAllKinds;
  MergedSchema::ArrayPart array_;
  MergedSchema::ObjectPart object_;
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_MERGER_H_
