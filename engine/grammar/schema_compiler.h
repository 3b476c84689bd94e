// From a SchemaDocument to the rules of an automaton, for CompileJsonSchema.
//
// Each place of the schema that describes a value (a property, the items of an array, a branch of
// anyOf) becomes a rule, named by its JSON pointer. Rules are found by what they ask for, so a
// recursive schema comes back to a rule that is already there. Bodies wait in a queue: nothing
// recurses along the schema.
#ifndef LM_ENGINE_GRAMMAR_SCHEMA_COMPILER_H_
#define LM_ENGINE_GRAMMAR_SCHEMA_COMPILER_H_

#include <deque>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/hash_map.h"
#include "engine/grammar/automaton_builder.h"
#include "engine/grammar/json_text.h"
#include "engine/grammar/merged_schema.h"
#include "engine/grammar/schema_document.h"

namespace lm {

class SchemaCompiler {
 public:
  // `absent_is_null`: see CompileExtractionSchema.
  SchemaCompiler(const SchemaDocument* document, bool absent_is_null, JsonSpaces spaces)
      : document_(*document), absent_is_null_(absent_is_null), json_(&builder_, spaces) {}

  // Call once. InvalidArgument: see CompileJsonSchema.
  absl::StatusOr<Automaton> Compile();

 private:
  // A value that is valid against all of these.
  RuleId RuleOf(Conjunction conjunction);
  absl::StatusOr<Fragment> BodyOf(const Conjunction& conjunction);
  // A union over the branches of the first open anyOf or oneOf.
  absl::StatusOr<Fragment> BranchesOf(const MergedSchema& schema);

  // For Nothing: "#/minimum (3) and #/maximum (2) cannot hold together". Null ones are left out.
  std::string Together(std::initializer_list<const SchemaJson*> places) const;

  absl::StatusOr<Fragment> Number(const MergedSchema& schema);
  absl::StatusOr<Fragment> String(const MergedSchema& schema);
  Fragment Array(const MergedSchema& schema);
  absl::StatusOr<Fragment> Object(const MergedSchema& schema);

  // A named member of an object that is being written.
  struct Property {
    RuleId rule;  // "name": value
    bool is_required;
  };
  // The properties that are named, in their order; *additional is set if there may be others. *why
  // is set where one that is required may not be there.
  absl::StatusOr<std::vector<Property>> PropertiesOf(const MergedSchema& schema,
                                                     std::optional<RuleId>* additional,
                                                     std::string* why);
  RuleId MemberRule(Fragment key, Fragment value);

  const SchemaDocument& document_;
  const bool absent_is_null_;
  AutomatonBuilder builder_;
  JsonText json_;
  HashMap<Conjunction, RuleId> rules_;
  std::deque<std::pair<RuleId, Conjunction>> queue_;  // rules without a body
  int64_t work_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_SCHEMA_COMPILER_H_
