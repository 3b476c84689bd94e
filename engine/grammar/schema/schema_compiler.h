// From a SchemaDocument to the rules of an automaton, for CompileJsonSchema.
//
// Each place of the schema that describes a value (a property, the items of an array, a branch of
// anyOf) becomes a rule, named by its JSON pointer. Rules are found by what they ask for, so a
// recursive schema comes back to a rule that is already there. Bodies wait in a queue: nothing
// recurses along the schema.
#ifndef LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_COMPILER_H_
#define LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_COMPILER_H_

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/hash_map.h"
#include "engine/grammar/automaton_builder.h"
#include "engine/grammar/schema/json_text.h"
#include "engine/grammar/schema/merged_schema.h"
#include "engine/grammar/schema/schema_document.h"
#include "engine/grammar/text_set.h"

namespace lm {

class SchemaCompiler {
 public:
  // `absent_is_null`: see CompileExtractionSchema.
  SchemaCompiler(const SchemaDocument* document, bool absent_is_null)
      : document_(*document),
        absent_is_null_(absent_is_null),
        json_(&builder_, document->options().spaces) {}

  // Call once. InvalidArgument: see CompileJsonSchema.
  absl::StatusOr<Automaton> Compile();

 private:
  absl::Status CheckRoot() const;
  // What it leads to, where it asks for nothing but to be valid against that.
  SchemaPart ReferredTo(SchemaPart part) const;
  // A value that is valid against all of these.
  RuleId RuleOf(Conjunction conjunction);
  absl::StatusOr<Fragment> BodyOf(const Conjunction& conjunction);
  // A union over the alternatives of the first choice that is open.
  absl::StatusOr<Fragment> BranchesOf(const MergedSchema& schema);
  // Whether it shows at once, or for an object in a member that is required, that nothing is valid.
  bool IsNothing(const MergedSchema& schema);
  // Adds to each branch of a oneOf that no other is valid, where that is not certain. Members that
  // only another branch lists are not written to that end, unless values are read word for word.
  absl::Status KeepApart(const MergedSchema::Choice& choice, std::vector<Conjunction>* branches);
  // InvalidArgument where that leaves nothing of a branch, wherever it stands, which is hardly what
  // was meant.
  absl::Status CheckOverlaps() const;
  // The values' texts.
  Fragment Values(const std::vector<const SchemaJson*>& values);

  // Adds it unless it is there.
  static void AddPartTo(const SchemaPart& part, Conjunction* conjunction);
  // The same rule wherever anything is allowed.
  RuleId ValueRule(Conjunction conjunction);

  // "#/minimum (3)" of each. Null ones are left out.
  std::vector<std::string> Shown(const std::vector<const SchemaJson*>& places) const;
  // For Nothing: "#/minimum (3) and #/maximum (2) cannot hold together".
  std::string Together(const std::vector<const SchemaJson*>& places) const;
  absl::Status RegexError(const SchemaJson& where, const absl::Status& status) const;

  absl::StatusOr<Fragment> Number(const MergedSchema& schema);
  Fragment NumberWith(const MergedSchema& schema, JsonText* json, AutomatonBuilder* builder) const;
  absl::StatusOr<Fragment> String(const MergedSchema& schema);
  // The strings that it asks for, as they are without quotes and escapes.
  absl::StatusOr<TextSet> StringSet(const MergedSchema& schema);
  // The keys or strings that a pattern, which is at `where`, finds itself in.
  absl::StatusOr<SharedTextSet> PatternSet(const SchemaJson& where, const std::string& pattern);
  Fragment Boolean(const MergedSchema& schema);

  absl::StatusOr<Fragment> Array(const MergedSchema& schema);
  // What item i must be valid against.
  Conjunction ItemOf(const MergedSchema& schema, size_t i);
  // An item, behind a comma unless it is the first, and `next` behind it.
  NodeId Element(bool is_first, RuleId rule, NodeId next);
  absl::StatusOr<Fragment> UniqueItems(const MergedSchema& schema, size_t prefix);
  // An array with `contains`.
  absl::StatusOr<Fragment> ItemsThatCount(const MergedSchema& schema, size_t prefix);
  // Each value that is valid against `schema`, once. An error at `where` if they are not few.
  absl::StatusOr<std::vector<SchemaJson>> AllValuesOf(const MergedSchema& schema,
                                                      const SchemaJson& where);

  absl::StatusOr<Fragment> Object(const MergedSchema& schema);
  // A named member of an object that is being written.
  struct Property {
    RuleId rule;  // "name": value; -1: it may not be there
    bool is_required;
    RuleId absent = -1;  // "name": null, which is written instead and does not count
  };
  // Of each part of an object, its properties by name.
  using PropertyIndex = std::vector<HashMap<std::string, const SchemaJson*>>;
  // The properties that are named, in their order; *additional is set if there may be others. *why
  // is set where one that is required may not be there.
  absl::StatusOr<std::vector<Property>> PropertiesOf(const MergedSchema& schema,
                                                     std::optional<RuleId>* additional,
                                                     std::string* why);
  absl::StatusOr<Conjunction> MemberOf(const MergedSchema& schema, const PropertyIndex& index,
                                       const std::string& name);
  // As far as the name alone decides.
  absl::StatusOr<bool> MayBeNamed(const MergedSchema& schema, const std::string& name);
  // A member of another name than these; none if there may be no other.
  absl::StatusOr<std::optional<RuleId>> OtherMember(const MergedSchema& schema,
                                                    const std::vector<std::string>& names);
  absl::StatusOr<std::optional<RuleId>> MemberByPatterns(const MergedSchema& schema,
                                                         const std::vector<std::string>& names,
                                                         bool is_open);
  // The keys that propertyNames, which together are `name`, allow, without `names`.
  absl::StatusOr<TextSet> KeysOf(const MergedSchema& schema, const MergedSchema& name,
                                 const std::vector<std::string>& names);
  // A member with one of `keys`, without `names`.
  absl::StatusOr<std::optional<RuleId>> MemberOfKeys(const MergedSchema& schema,
                                                     const std::vector<const SchemaJson*>& keys,
                                                     const std::vector<std::string>& names,
                                                     bool is_open);
  std::optional<RuleId> AnotherMember(const std::vector<Fragment>& members);
  RuleId MemberRule(Fragment key, Fragment value, absl::string_view name = "a member");
  // The same rule for the same member, in whatever object.
  RuleId NamedMember(const std::string& name, RuleId value, bool may_be_null);
  RuleId NullMember(const std::string& name);

  const SchemaDocument& document_;
  const bool absent_is_null_;
  AutomatonBuilder builder_;
  JsonText json_;
  HashMap<Conjunction, RuleId> rules_;
  HashMap<RuleId, const SchemaJson*> places_;         // of rules without a name
  std::deque<std::pair<RuleId, Conjunction>> queue_;  // rules without a body
  RuleId any_value_ = -1;
  HashMap<std::string, RuleId> string_rules_;  // of StringSets, by what they ask for
  std::map<std::pair<std::string, std::pair<RuleId, bool>>, RuleId> named_members_;
  // A branch of a oneOf, some values of which may be valid against others of its branches.
  struct Overlap {
    const SchemaJson* branch = nullptr;
    std::vector<const SchemaJson*> others;
    // One of them, which has no type, and is valid for all values of kinds that it does not speak
    // of; or null.
    const SchemaJson* without_type = nullptr;
    uint8_t kinds = 0;  // that are written for the branch
    // Wherever it stands: with the other branches' values, and without them.
    std::vector<RuleId> whole, apart;
  };
  std::vector<Overlap> overlaps_;
  HashMap<const SchemaJson*, size_t> overlap_of_;  // by branch, in overlaps_
  SchemaWork work_;
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_COMPILER_H_
