// The one internal form of every grammar: rules whose bodies are little automata over bytes that
// may call each other (a recursive transition network). AutomatonBuilder makes one, StateMachine
// runs it.
//
// A node waits for a byte, forks, calls a rule, or ends its rule:
//
//   kBytes  [low, high] -> next
//   kSplit  -> next and -> other, without a byte
//   kCall   rule, then -> next; and if the rule matches the empty string, -> other without a byte
//   kFinal  the rule is matched; on to where it was called from
//   kDead   matches nothing
//
// Immutable; thread-safe. What Build guarantees and StateMachine relies on:
//   - from every node that is not kDead its rule can be finished, so no text is a dead end;
//   - no rule begins with itself, not even behind something empty (no left recursion): `order`
//     numbers the rules so that a rule's first calls have greater numbers;
//   - every accepted text is valid UTF-8 without U+0000, because literals and classes are.
#ifndef LM_ENGINE_GRAMMAR_AUTOMATON_H_
#define LM_ENGINE_GRAMMAR_AUTOMATON_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lm {

using NodeId = int32_t;
using RuleId = int32_t;

enum class NodeKind : uint8_t { kBytes, kSplit, kCall, kFinal, kDead, kLink };

struct Node {
  NodeKind kind = NodeKind::kDead;
  uint8_t low = 0;
  uint8_t high = 0;
  NodeId next = -1;
  NodeId other = -1;
  RuleId rule = -1;
};

struct Automaton {
  // Bytes: so many and more are not counted.
  static constexpr int32_t kFar = 1 << 24;

  std::vector<Node> nodes;
  // Of each node: the fewest bytes from there to the end of its rule; at most kFar.
  std::vector<int32_t> distance;
  // No beginning of a text lacks more bytes than this to the nearest end of one; at most kFar.
  int32_t greatest_distance = kFar;
  std::vector<NodeId> rule_start;
  std::vector<int32_t> order;
  RuleId root = 0;
  // Bytes that no node tells apart share a class; class c stands for byte representative[c].
  std::array<uint8_t, 256> class_of_byte{};
  std::vector<uint8_t> representative;

  int num_classes() const { return static_cast<int>(representative.size()); }
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_AUTOMATON_H_
