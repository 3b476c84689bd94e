// The branches of a oneOf, of SchemaCompiler.
#include <algorithm>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/schema/schema_branches.h"
#include "engine/grammar/schema/schema_compiler.h"
#include "engine/grammar/schema/schema_values.h"

namespace lm {
namespace {

// The branches that might share a value with a given one: all, but of two that list their values
// only those that list the same one.
class Neighbours {
 public:
  // REQUIRES: `branches` outlives this.
  explicit Neighbours(const std::vector<MergedSchema>& branches)
      : branches_(branches), all_(branches.size()) {
    std::iota(all_.begin(), all_.end(), size_t{0});
    for (const size_t i : all_) {
      if (!branches[i].values) {
        open_.push_back(i);
        continue;
      }
      for (const SchemaJson* value : *branches[i].values) listing_[value].push_back(i);
    }
  }

  // In order, perhaps with `i` itself.
  std::vector<size_t> Of(size_t i, SchemaWork* work) const {
    if (!branches_[i].values) return all_;
    std::vector<size_t> those = open_;
    for (const SchemaJson* value : *branches_[i].values) {
      const std::vector<size_t>& others = listing_.at(value);
      work->members += static_cast<int64_t>(others.size());
      if (work->IsTooMuch()) break;
      if (others.size() > 1) those.insert(those.end(), others.begin(), others.end());
    }
    std::sort(those.begin(), those.end());
    those.erase(std::unique(those.begin(), those.end()), those.end());
    return those;
  }

 private:
  const std::vector<MergedSchema>& branches_;
  std::vector<size_t> all_;
  std::vector<size_t> open_;  // that do not list their values
  std::unordered_map<const SchemaJson*, std::vector<size_t>, ValueHash, ValueEqual> listing_;
};

// Of `others`, the branches against which a value that is written for branch `i` may be valid. Not
// all of them where that is too much work.
absl::StatusOr<std::vector<size_t>> Overlapping(const SchemaDocument& document,
                                                const SchemaJson::Array& schemas,
                                                const std::vector<MergedSchema>& merged, size_t i,
                                                std::vector<size_t> others, SchemaWork* work) {
  std::vector<size_t> overlapping;
  bool brings_more = false;
  // What is certain of branch `i` alone may not be where the opposites of some bring more.
  for (const bool grows : {false, true}) {
    if (grows && !brings_more) break;
    std::vector<size_t> apart;
    for (const size_t j : others) {
      RETURN_IF_ERROR(Checkpoint());
      if (++work->members > kMaxSchemaWork) break;
      ASSIGN_OR_RETURN(const bool never, NeverFits(document, merged[i], merged[j], grows, work));
      (never ? apart : overlapping).push_back(j);
      brings_more = brings_more || (!never && OppositeBringsMore(document, schemas[j], work));
    }
    others = std::move(apart);
  }
  return overlapping;
}

}  // namespace

absl::Status SchemaCompiler::KeepApart(const MergedSchema::Choice& choice,
                                       std::vector<Conjunction>* branches) {
  const SchemaJson::Array& schemas = choice.one_of->array();
  const auto too_large = [&] {
    return document_.Error(
        *choice.one_of,
        absl::StrCat("too large: a oneOf of ", schemas.size(), " branches, each of which is ",
                     "compared with the others, limit ", kMaxSchemaWork,
                     " members of schemas; anyOf asks for no comparison"));
  };
  std::vector<MergedSchema> merged;
  // What is unevaluated in one branch says nothing about whether the other is valid.
  for (const Conjunction& branch : *branches) {
    if (work_.IsTooMuch()) return too_large();
    ASSIGN_OR_RETURN(MergedSchema one, MergeToTellApart(document_, branch, &work_));
    merged.push_back(std::move(one));
  }
  const Neighbours neighbours(merged);
  for (size_t i = 0; i < merged.size(); ++i) {
    Overlap overlap;
    overlap.branch = &schemas[i];
    Conjunction apart = (*branches)[i];
    std::vector<size_t> others = neighbours.Of(i, &work_);
    std::erase(others, i);
    ASSIGN_OR_RETURN(const std::vector<size_t> overlapping,
                     Overlapping(document_, schemas, merged, i, std::move(others), &work_));
    if (work_.IsTooMuch()) return too_large();
    for (const size_t j : overlapping) {
      work_.members += static_cast<int64_t>(apart.size());
      AddPartTo({&schemas[j], /*negated=*/true}, &apart);
      overlap.others.push_back(&schemas[j]);
      const uint8_t common = WrittenKinds(merged[i]) & merged[j].kinds;
      if (overlap.without_type == nullptr && (common & ~merged[j].implied_kinds) != 0) {
        overlap.without_type = &schemas[j];
      }
    }
    if (overlap.others.empty()) continue;
    if (!document_.options().additional) {
      AddPartTo({&schemas[i], /*negated=*/false, SchemaPart::Asks::kListed}, &apart);
      auto [known, is_new] = overlap_of_.try_emplace(&schemas[i], overlaps_.size());
      if (is_new) {
        overlap.kinds = WrittenKinds(merged[i]);
        overlaps_.push_back(std::move(overlap));
      }
      overlaps_[known->second].whole.push_back(RuleOf((*branches)[i]));
      overlaps_[known->second].apart.push_back(RuleOf(apart));
    }
    (*branches)[i] = std::move(apart);
  }
  return absl::OkStatus();
}

absl::Status SchemaCompiler::CheckOverlaps() const {
  if (overlaps_.empty()) return absl::OkStatus();
  std::vector<RuleId> rules;
  for (const Overlap& overlap : overlaps_) {
    rules.insert(rules.end(), overlap.whole.begin(), overlap.whole.end());
    rules.insert(rules.end(), overlap.apart.begin(), overlap.apart.end());
  }
  ASSIGN_OR_RETURN(const std::vector<bool> live, builder_.LiveRules(rules));
  for (const Overlap& overlap : overlaps_) {
    const auto is_live = [&live](RuleId rule) { return live[rule]; };
    if (std::none_of(overlap.whole.begin(), overlap.whole.end(), is_live)) continue;
    if (std::any_of(overlap.apart.begin(), overlap.apart.end(), is_live)) continue;
    const char* what = overlap.kinds == kObject ? "object" : "value";
    if (overlap.without_type != nullptr) {
      const std::string other = document_.PointerOf(*overlap.without_type);
      return document_.Error(
          *overlap.branch,
          absl::StrCat("every ", what, " that this branch of oneOf asks for is valid against ",
                       other, " too, which has no type: give ", other, " a type"));
    }
    constexpr size_t kNamed = 3;
    std::vector<std::string> others;
    for (const SchemaJson* other : overlap.others) {
      if (others.size() < kNamed) others.push_back(document_.PointerOf(*other));
    }
    if (overlap.others.size() > kNamed) others.push_back("others");
    return document_.Error(
        *overlap.branch,
        absl::StrCat(
            "every ", what, " that is written for this branch of oneOf is valid against ",
            absl::StrJoin(others, " or "), " too: ",
            overlap.kinds == kObject
                ? "list in `required` of each a property that the others do not have, or use anyOf"
                : "use anyOf"));
  }
  return absl::OkStatus();
}

}  // namespace lm
