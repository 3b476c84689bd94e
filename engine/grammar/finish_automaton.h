// From what a builder wrote to what a machine can run: links resolved, dead ends cut, left
// recursion refused, rules ordered, bytes classified. Linear in the number of nodes; nothing
// recurses.
#ifndef LM_ENGINE_GRAMMAR_FINISH_AUTOMATON_H_
#define LM_ENGINE_GRAMMAR_FINISH_AUTOMATON_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/hash_map.h"
#include "engine/grammar/automaton.h"

namespace lm {

// What to call a rule in a message.
using RuleNamer = absl::FunctionRef<std::string(RuleId)>;

// `why_dead`: what to say where one of these nodes is the reason that there is no text at all.
// REQUIRES: every rule that is called has a start.
absl::StatusOr<Automaton> FinishAutomaton(std::vector<Node> nodes, std::vector<NodeId> rule_start,
                                          RuleNamer name_of,
                                          const HashMap<NodeId, std::string>& why_dead,
                                          RuleId root);

// By rule: whether it is called, directly or not, from one of `roots`, or is one, and matches any
// text. REQUIRES: as FinishAutomaton.
absl::StatusOr<std::vector<bool>> FindLiveRules(std::vector<Node> nodes,
                                                std::vector<NodeId> rule_start,
                                                absl::Span<const RuleId> roots);

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_FINISH_AUTOMATON_H_
