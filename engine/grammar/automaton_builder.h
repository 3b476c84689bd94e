// Puts an Automaton together. The front ends (regex, GBNF, JSON Schema, choices) write to this.
//
//   AutomatonBuilder builder;
//   RuleId root = builder.AddRule("root");
//   builder.Define(root, builder.Concat(builder.Literal("v"),
//   builder.Plus(builder.Class(digits)))); ASSIGN_OR_RETURN(Automaton automaton,
//   builder.Build(root));
//
// A Fragment is a piece under construction with one entry and one open end; it may be used once.
// Beyond kMaxNodes or kMaxRules nothing more is added and Build returns the error, so that callers
// need not check every step. Nothing here recurses.
#ifndef LM_ENGINE_GRAMMAR_AUTOMATON_BUILDER_H_
#define LM_ENGINE_GRAMMAR_AUTOMATON_BUILDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/base/hash_map.h"
#include "engine/grammar/automaton.h"
#include "engine/grammar/code_point_set.h"
#include "engine/grammar/finish_automaton.h"

namespace lm {

inline constexpr int32_t kMaxNodes = 1 << 20;
inline constexpr int32_t kMaxRules = 1 << 16;
// The greatest count in {m,n} and friends.
inline constexpr int64_t kMaxRepeat = 100000;

struct Fragment {
  NodeId start;
  NodeId end;  // a kLink that leads nowhere yet
};

class AutomatonBuilder {
 public:
  AutomatonBuilder();

  // `name` is for messages; where it is empty, Build asks for it.
  RuleId AddRule(absl::string_view name);
  void Define(RuleId rule, Fragment body);
  bool IsDefined(RuleId rule) const { return rule_start_[rule] >= 0; }

  Fragment Empty();
  // Matches no text at all. Where that leaves none for the whole grammar, Build says `why`.
  Fragment Nothing(std::string why);
  // REQUIRES: valid UTF-8 without U+0000.
  Fragment Literal(absl::string_view text);
  // Any of these texts, with common beginnings shared. REQUIRES: as Literal.
  Fragment AnyLiteral(std::vector<std::string> texts);
  Fragment Class(const CodePointSet& set);  // one character of the set
  Fragment Call(RuleId rule);
  Fragment Concat(Fragment a, Fragment b);
  Fragment Concat(absl::Span<const Fragment> parts);
  Fragment Alternate(absl::Span<const Fragment> alternatives);
  Fragment Optional(Fragment a);
  Fragment Star(Fragment a);
  Fragment Plus(Fragment a);
  // From `min` to `max` times, without end if !max.
  // REQUIRES: 0 <= min <= max <= kMaxRepeat.
  Fragment Repeat(Fragment a, int64_t min, std::optional<int64_t> max);

  // Single nodes, for shapes that are easier to draw by hand, from the end to the start.
  NodeId AddBytes(uint8_t low, uint8_t high, NodeId next);
  NodeId AddSplit(NodeId next, NodeId other);
  NodeId AddCall(RuleId rule, NodeId next);
  NodeId AddDead(std::string why = "");
  NodeId AddLink();  // leads nowhere until Connect
  void Connect(NodeId link, NodeId target) { nodes_[link].next = target; }
  // A fork to any number of nodes; dead if there are none.
  NodeId AddFork(absl::Span<const NodeId> targets);

  // Adds all that `other` has, as it stands there: its rule r becomes rule r + what is returned.
  // REQUIRES: all its rules are defined, and all its fragments are in them.
  RuleId AddAll(const AutomatonBuilder& other);

  // By rule: whether it matches any text, for those that `rules` lead to. Errors: as Build, where
  // the thread's scope is interrupted. REQUIRES: all of those are defined.
  absl::StatusOr<std::vector<bool>> LiveRules(absl::Span<const RuleId> rules) const {
    return FindLiveRules(nodes_, rule_start_, rules);
  }

  // Not OK once a limit was crossed.
  const absl::Status& status() const { return status_; }

  // InvalidArgument: a limit was crossed, `root` matches no text (with the reason: what was given
  // to Nothing, or the rule that never ends), or a rule begins with itself. REQUIRES: every rule
  // that is called is defined.
  absl::StatusOr<Automaton> Build(RuleId root, RuleNamer name_of) &&;
  absl::StatusOr<Automaton> Build(RuleId root) &&;

 private:
  // What is repeated: a rule, or without one a byte.
  struct Unit {
    uint8_t low = 0;
    uint8_t high = 0;
    RuleId rule = -1;
  };

  NodeId AddNode(const Node& node);
  // `next` behind it; where it is empty, it leads to `end`: the others may be, too.
  NodeId AddUnit(const Unit& unit, NodeId next, NodeId end);
  // From `min` to `max` times, drawn one by one.
  Fragment Chain(const Unit& unit, int64_t min, int64_t max);

  std::vector<Node> nodes_;
  std::vector<NodeId> rule_start_;
  std::vector<std::string> rule_names_;
  HashMap<NodeId, std::string> why_dead_;
  absl::Status status_;
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_AUTOMATON_BUILDER_H_
