#include "engine/grammar/finish_automaton.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/base/hash_map.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// Steps from one question whether anybody still waits to the next. Behind one that was interrupted
// nothing may be looked at that it left unfinished.
constexpr uint32_t kSteps = 4096;

// Keeps what `roots` lead to, and lets every edge skip the links, which are left out; a link that
// leads nowhere (its fragment was dropped) is dead. Rules that are not called begin at node 0,
// which is dead. Returns the new numbers of the nodes, -1 where they are gone.
std::vector<NodeId> KeepReachable(absl::Span<const RuleId> roots, std::vector<Node>* nodes,
                                  std::vector<NodeId>* rule_start) {
  auto resolve = [nodes](NodeId id) {
    NodeId target = id;
    while (target >= 0 && (*nodes)[target].kind == NodeKind::kLink) target = (*nodes)[target].next;
    if (target < 0) target = 0;
    while ((*nodes)[id].kind == NodeKind::kLink) {  // the next search is short
      NodeId next = (*nodes)[id].next;
      (*nodes)[id].next = target;
      if (next < 0 || next == target) break;
      id = next;
    }
    return target;
  };
  std::vector<NodeId> numbers(nodes->size(), -1);
  std::vector<NodeId> kept;
  auto number_of = [&](NodeId id) {
    const NodeId target = resolve(id);
    if (numbers[target] < 0) {
      numbers[target] = static_cast<NodeId>(kept.size());
      kept.push_back(target);
    }
    return numbers[target];
  };
  std::vector<bool> called(rule_start->size());
  auto call = [&](RuleId rule) {
    if (called[rule]) return;
    called[rule] = true;
    (*rule_start)[rule] = number_of((*rule_start)[rule]);
  };
  number_of(0);
  for (const RuleId root : roots) call(root);
  std::vector<Node> reached;
  reached.reserve(nodes->size());
  for (size_t i = 0; i < kept.size(); ++i) {
    if (i % kSteps == 0 && Interrupted()) break;
    Node node = (*nodes)[kept[i]];
    if (node.next >= 0) node.next = number_of(node.next);
    if (node.other >= 0) node.other = number_of(node.other);
    if (node.rule >= 0) call(node.rule);
    reached.push_back(node);
  }
  for (size_t r = 0; r < rule_start->size(); ++r) {
    if (!called[r]) (*rule_start)[r] = 0;
  }
  *nodes = std::move(reached);
  return numbers;
}

// Who must be looked at again when a node, or a rule, turns out to hold.
class Dependents {
 public:
  Dependents(absl::Span<const Node> nodes, absl::Span<const NodeId> rule_start)
      : of_node_(nodes.size() + 2),
        of_rule_(rule_start.size() + 2),
        rule_at_(nodes.size(), -1),
        next_rule_(rule_start.size(), -1) {
    // Counts, one place further than where they begin; filling moves them to where they belong.
    ForEachEdge(
        nodes, [&](NodeId to, NodeId) { ++of_node_[to + 2]; },
        [&](RuleId rule, NodeId) { ++of_rule_[rule + 2]; });
    for (size_t i = 1; i < of_node_.size(); ++i) of_node_[i] += of_node_[i - 1];
    for (size_t i = 1; i < of_rule_.size(); ++i) of_rule_[i] += of_rule_[i - 1];
    node_sources_.resize(of_node_.back());
    rule_sources_.resize(of_rule_.back());
    ForEachEdge(
        nodes, [&](NodeId to, NodeId from) { node_sources_[of_node_[to + 1]++] = from; },
        [&](RuleId rule, NodeId from) { rule_sources_[of_rule_[rule + 1]++] = from; });
    for (size_t r = 0; r < rule_start.size(); ++r) {
      next_rule_[r] = rule_at_[rule_start[r]];
      rule_at_[rule_start[r]] = static_cast<RuleId>(r);
    }
  }

  absl::Span<const NodeId> OfNode(NodeId id) const {
    return absl::MakeConstSpan(node_sources_)
        .subspan(of_node_[id], of_node_[id + 1] - of_node_[id]);
  }
  absl::Span<const NodeId> OfRule(RuleId id) const {
    return absl::MakeConstSpan(rule_sources_)
        .subspan(of_rule_[id], of_rule_[id + 1] - of_rule_[id]);
  }
  // The rules that begin at a node: the first, and the next after each; -1 behind the last.
  RuleId FirstRuleAt(NodeId id) const { return rule_at_[id]; }
  RuleId NextRule(RuleId rule) const { return next_rule_[rule]; }

 private:
  template <typename NodeEdge, typename RuleEdge>
  static void ForEachEdge(absl::Span<const Node> nodes, NodeEdge node_edge, RuleEdge rule_edge) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (i % kSteps == 0 && Interrupted()) break;
      const NodeId from = static_cast<NodeId>(i);
      if (nodes[i].next >= 0) node_edge(nodes[i].next, from);
      if (nodes[i].other >= 0) node_edge(nodes[i].other, from);
      if (nodes[i].rule >= 0) rule_edge(nodes[i].rule, from);
    }
  }

  std::vector<int32_t> of_node_, of_rule_;  // offsets
  std::vector<NodeId> node_sources_, rule_sources_;
  std::vector<RuleId> rule_at_, next_rule_;
};

// What holds of a node by what holds of its successors, and of a rule by its start.
struct Facts {
  std::vector<uint8_t> node;
  std::vector<uint8_t> rule;
};

// From where the end of the rule can be reached without a byte.
Facts FindNullable(absl::Span<const Node> nodes, size_t num_rules, const Dependents& dependents) {
  Facts nullable{std::vector<uint8_t>(nodes.size()), std::vector<uint8_t>(num_rules)};
  auto holds = [&nullable](const Node& node) -> bool {
    switch (node.kind) {
      case NodeKind::kFinal:
        return true;
      case NodeKind::kSplit:
        return nullable.node[node.next] || nullable.node[node.other];
      case NodeKind::kCall:
        return nullable.rule[node.rule] && nullable.node[node.other];
      default:
        return false;
    }
  };
  std::vector<NodeId> work;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind == NodeKind::kFinal) work.push_back(static_cast<NodeId>(i));
  }
  uint32_t steps = 0;
  while (!work.empty()) {
    if (++steps % kSteps == 0 && Interrupted()) break;
    const NodeId id = work.back();
    work.pop_back();
    if (nullable.node[id] || !holds(nodes[id])) continue;
    nullable.node[id] = true;
    for (NodeId from : dependents.OfNode(id)) work.push_back(from);
    for (RuleId rule = dependents.FirstRuleAt(id); rule >= 0; rule = dependents.NextRule(rule)) {
      nullable.rule[rule] = true;
      for (NodeId from : dependents.OfRule(rule)) work.push_back(from);
    }
  }
  return nullable;
}

// Of each node, the fewest bytes to the end of its rule, at most kFar (Automaton::distance), and
// whether there is a way at all: whether it is live. By Knuth's generalisation of Dijkstra's
// algorithm: a call costs what its rule does.
Facts MeasureDistances(absl::Span<const Node> nodes, size_t num_rules, const Facts& nullable,
                       const Dependents& dependents, std::vector<int32_t>* distances) {
  constexpr int32_t kFar = Automaton::kFar;
  constexpr int32_t kNowhere = 8 * kFar;  // beyond the sum of two
  Facts live{std::vector<uint8_t>(nodes.size()), std::vector<uint8_t>(num_rules)};
  std::vector<int32_t> least(nodes.size(), kNowhere);  // as far as known
  std::vector<int32_t>& distance = *distances;
  distance.assign(nodes.size(), kNowhere);
  std::vector<int32_t> rule_distance(num_rules, kNowhere);
  // By distance: the present one, one more, and more than that.
  int32_t now = 0;
  std::vector<NodeId> here, next;
  std::map<int32_t, std::vector<NodeId>> later;
  auto look = [&](NodeId id) {
    const Node& node = nodes[id];
    int32_t found = kNowhere;
    switch (node.kind) {
      case NodeKind::kFinal:
        found = 0;
        break;
      case NodeKind::kBytes:
        found = 1 + distance[node.next];
        break;
      case NodeKind::kSplit:
        found = std::min(distance[node.next], distance[node.other]);
        break;
      case NodeKind::kCall:
        found = rule_distance[node.rule] + distance[node.next];
        if (nullable.rule[node.rule]) found = std::min(found, distance[node.other]);
        break;
      default:
        break;
    }
    if (found >= kNowhere) return;
    found = std::min(found, kFar);
    if (found >= least[id]) return;
    least[id] = found;
    (found == now ? here : found == now + 1 ? next : later[found]).push_back(id);
  };
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind == NodeKind::kFinal) look(static_cast<NodeId>(i));
  }
  uint32_t steps = 0;
  while (true) {
    if (here.empty()) {
      if (next.empty() && later.empty()) break;
      now = next.empty() ? later.begin()->first : now + 1;
      here.swap(next);
      if (!later.empty() && later.begin()->first == now) {
        const std::vector<NodeId>& more = later.begin()->second;
        here.insert(here.end(), more.begin(), more.end());
        later.erase(later.begin());
      }
      // What is one further now.
      if (!later.empty() && later.begin()->first == now + 1) {
        next = std::move(later.begin()->second);
        later.erase(later.begin());
      }
    }
    if (++steps % kSteps == 0 && Interrupted()) break;
    const NodeId id = here.back();
    here.pop_back();
    if (live.node[id]) continue;
    live.node[id] = true;
    distance[id] = now;
    for (NodeId from : dependents.OfNode(id)) look(from);
    for (RuleId rule = dependents.FirstRuleAt(id); rule >= 0; rule = dependents.NextRule(rule)) {
      live.rule[rule] = true;
      rule_distance[rule] = now;
      for (NodeId from : dependents.OfRule(rule)) look(from);
    }
  }
  for (int32_t& one : distance) one = std::min(one, kFar);
  return live;
}

// Why `root` cannot be finished: goes from its start to what cannot be reached, to its end, and
// where that way comes back to itself, or nothing is known of its end, another one.
absl::Status NoText(absl::Span<const Node> nodes, absl::Span<const NodeId> rule_start,
                    const Facts& live, RuleNamer name_of,
                    const HashMap<NodeId, std::string>& why_dead, RuleId root) {
  struct Place {
    NodeId node;
    RuleId rule;  // that it is of
  };
  std::vector<bool> seen(nodes.size());
  std::vector<Place> others;
  std::optional<RuleId> empty, circle;  // the first ones
  for (Place at = {rule_start[root], root};;) {
    const Node& node = nodes[at.node];
    const auto why = why_dead.find(at.node);
    if (node.kind == NodeKind::kDead && why != why_dead.end()) {
      return absl::InvalidArgumentError(absl::StrCat("no text fits: ", why->second));
    }
    if (node.kind == NodeKind::kDead || seen[at.node]) {
      std::optional<RuleId>& first = seen[at.node] ? circle : empty;
      if (!first.has_value()) first = at.rule;
      if (others.empty()) break;
      at = others.back();
      others.pop_back();
      continue;
    }
    seen[at.node] = true;
    if (node.kind == NodeKind::kSplit) others.push_back({node.other, at.rule});
    // A call that could go on behind its rule is dead by that. Where neither could be finished,
    // what is behind may be what matters: the rule could be one that need not be called.
    const bool is_dead_call = node.kind == NodeKind::kCall && !live.rule[node.rule];
    const Place called = is_dead_call ? Place{rule_start[node.rule], node.rule} : Place{};
    if (is_dead_call && live.node[node.next]) {
      at = called;
    } else {
      if (is_dead_call) others.push_back(called);
      at.node = node.next;
    }
  }
  const std::string name =
      absl::CHexEscape(name_of(empty.has_value() ? *empty : *circle).substr(0, 200));
  return absl::InvalidArgumentError(
      empty.has_value() ? absl::StrCat("no text fits: there is none for ", name)
                        : absl::StrCat("no text fits: ", name,
                                       " never ends, since it always asks for itself again"));
}

// Cuts what cannot be finished.
void Trim(const Facts& nullable, const Facts& live, std::vector<Node>* nodes) {
  for (size_t i = 0; i < nodes->size(); ++i) {
    Node& node = (*nodes)[i];
    if (!live.node[i]) {
      node = {};
    } else if (node.kind == NodeKind::kCall) {
      const bool skips = nullable.rule[node.rule] && live.node[node.other];
      const bool calls = live.rule[node.rule] && live.node[node.next];
      if (!skips) node.other = 0;
      if (!calls) {
        node = {NodeKind::kSplit, 0, 0, node.other, 0, -1};
      }
    }
  }
}

// The greatest distance of all places that texts come through: within a rule, and behind each call
// of it. kFar where rules call each other in a circle.
int32_t GreatestDistance(const Automaton& automaton) {
  constexpr int32_t kFar = Automaton::kFar;
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> mark(automaton.rule_start.size(), kNew);
  std::vector<int32_t> greatest(automaton.rule_start.size());
  std::vector<bool> seen(automaton.nodes.size());
  struct Open {
    RuleId rule;
    std::vector<std::pair<RuleId, int32_t>> calls = {};  // and the distance behind them
    size_t followed = 0;
  };
  std::vector<Open> path;
  std::vector<NodeId> work;
  uint32_t steps = 0;
  auto open = [&](RuleId rule) {
    mark[rule] = kOpen;
    Open& top = path.emplace_back(Open{rule});
    work.push_back(automaton.rule_start[rule]);
    while (!work.empty()) {
      if (++steps % kSteps == 0 && Interrupted()) break;
      const NodeId id = work.back();
      work.pop_back();
      const Node& node = automaton.nodes[id];
      if (seen[id] || node.kind == NodeKind::kDead) continue;
      seen[id] = true;
      greatest[rule] = std::max(greatest[rule], automaton.distance[id]);
      if (node.next >= 0) work.push_back(node.next);
      if (node.other >= 0) work.push_back(node.other);
      if (node.kind == NodeKind::kCall) {
        top.calls.emplace_back(node.rule, automaton.distance[node.next]);
      }
    }
    std::sort(top.calls.begin(), top.calls.end());
  };
  open(automaton.root);
  while (true) {
    if (++steps % kSteps == 0 && Interrupted()) return kFar;
    Open& top = path.back();
    if (top.followed == top.calls.size()) {
      mark[top.rule] = kDone;
      const int32_t of_callee = greatest[top.rule];
      path.pop_back();
      if (path.empty()) return std::min(of_callee, kFar);
      continue;
    }
    const auto [callee, behind] = top.calls[top.followed];
    if (mark[callee] == kOpen) return kFar;
    if (mark[callee] == kNew) {
      open(callee);
      continue;  // and look at this call again when it is done
    }
    ++top.followed;
    greatest[top.rule] = std::max(greatest[top.rule], std::min(greatest[callee] + behind, kFar));
  }
}

// For each rule, the rules that it may call before its first byte.
std::vector<std::vector<RuleId>> FirstCalls(absl::Span<const Node> nodes,
                                            absl::Span<const NodeId> rule_start) {
  std::vector<std::vector<RuleId>> first_calls(rule_start.size());
  std::vector<int32_t> seen_by(nodes.size(), -1);
  std::vector<NodeId> work;
  for (size_t r = 0; r < rule_start.size(); ++r) {
    if (r % 256 == 0 && Interrupted()) break;
    const int32_t rule = static_cast<int32_t>(r);
    work.push_back(rule_start[r]);
    while (!work.empty()) {
      const NodeId id = work.back();
      work.pop_back();
      if (seen_by[id] == rule) continue;
      seen_by[id] = rule;
      const Node& node = nodes[id];
      if (node.kind == NodeKind::kSplit) {
        work.push_back(node.next);
        work.push_back(node.other);
      } else if (node.kind == NodeKind::kCall) {
        first_calls[r].push_back(node.rule);
        work.push_back(node.other);
      }
    }
    std::sort(first_calls[r].begin(), first_calls[r].end());
    first_calls[r].erase(std::unique(first_calls[r].begin(), first_calls[r].end()),
                         first_calls[r].end());
  }
  return first_calls;
}

absl::Status LeftRecursion(absl::Span<const std::pair<RuleId, size_t>> path, RuleId again,
                           RuleNamer name_of) {
  std::string text;
  bool inside = false;
  int named = 0;
  for (const auto& [rule, unused] : path) {
    inside = inside || rule == again;
    if (!inside) continue;
    if (++named > 5) {
      absl::StrAppend(&text, "... -> ");
      break;
    }
    absl::StrAppend(&text, absl::CHexEscape(name_of(rule).substr(0, 100)), " -> ");
  }
  const std::string name = absl::CHexEscape(name_of(again).substr(0, 100));
  return absl::InvalidArgumentError(absl::StrCat("rule ", name, " begins with itself (", text, name,
                                                 "): left recursion is not supported"));
}

// Callers before callees.
absl::StatusOr<std::vector<int32_t>> Order(const std::vector<std::vector<RuleId>>& first_calls,
                                           RuleNamer name_of) {
  const size_t num_rules = first_calls.size();
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> mark(num_rules, kNew);
  std::vector<int32_t> order(num_rules);
  int32_t next_number = static_cast<int32_t>(num_rules);
  std::vector<std::pair<RuleId, size_t>> path;  // a rule and how many of its calls were followed
  for (size_t r = 0; r < num_rules; ++r) {
    if (mark[r] != kNew) continue;
    path.emplace_back(static_cast<RuleId>(r), 0);
    mark[r] = kOpen;
    while (!path.empty()) {
      auto& [rule, followed] = path.back();
      if (followed == first_calls[rule].size()) {
        mark[rule] = kDone;
        order[rule] = --next_number;
        path.pop_back();
        continue;
      }
      const RuleId callee = first_calls[rule][followed++];
      if (mark[callee] == kOpen) return LeftRecursion(path, callee, name_of);
      if (mark[callee] == kNew) {
        mark[callee] = kOpen;
        path.emplace_back(callee, 0);
      }
    }
  }
  return order;
}

void ClassifyBytes(Automaton* automaton) {
  std::array<bool, 257> begins{};  // a class begins at this byte
  begins[0] = true;
  for (const Node& node : automaton->nodes) {
    if (node.kind != NodeKind::kBytes) continue;
    begins[node.low] = true;
    begins[node.high + 1] = true;
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (begins[byte]) automaton->representative.push_back(static_cast<uint8_t>(byte));
    automaton->class_of_byte[byte] = static_cast<uint8_t>(automaton->representative.size() - 1);
  }
}

}  // namespace

absl::StatusOr<Automaton> FinishAutomaton(std::vector<Node> nodes, std::vector<NodeId> rule_start,
                                          RuleNamer name_of,
                                          const HashMap<NodeId, std::string>& why_dead,
                                          RuleId root) {
  const std::vector<NodeId> numbers = KeepReachable({root}, &nodes, &rule_start);
  RETURN_IF_ERROR(Checkpoint());
  const Dependents dependents(nodes, rule_start);
  RETURN_IF_ERROR(Checkpoint());
  const Facts nullable = FindNullable(nodes, rule_start.size(), dependents);
  Automaton automaton;
  const Facts live =
      MeasureDistances(nodes, rule_start.size(), nullable, dependents, &automaton.distance);
  RETURN_IF_ERROR(Checkpoint());
  if (!live.rule[root]) {
    HashMap<NodeId, std::string> why;
    for (const auto& [dead, what] : why_dead) {
      if (numbers[dead] >= 0) why.try_emplace(numbers[dead], what);
    }
    return NoText(nodes, rule_start, live, name_of, why, root);
  }
  Trim(nullable, live, &nodes);
  RETURN_IF_ERROR(Checkpoint());
  ASSIGN_OR_RETURN(automaton.order, Order(FirstCalls(nodes, rule_start), name_of));
  automaton.nodes = std::move(nodes);
  automaton.rule_start = std::move(rule_start);
  automaton.root = root;
  ClassifyBytes(&automaton);
  automaton.greatest_distance = GreatestDistance(automaton);
  RETURN_IF_ERROR(Checkpoint());
  return automaton;
}

absl::StatusOr<std::vector<bool>> FindLiveRules(std::vector<Node> nodes,
                                                std::vector<NodeId> rule_start,
                                                absl::Span<const RuleId> roots) {
  KeepReachable(roots, &nodes, &rule_start);
  RETURN_IF_ERROR(Checkpoint());
  const Dependents dependents(nodes, rule_start);
  RETURN_IF_ERROR(Checkpoint());
  const Facts nullable = FindNullable(nodes, rule_start.size(), dependents);
  std::vector<int32_t> distances;
  const Facts live = MeasureDistances(nodes, rule_start.size(), nullable, dependents, &distances);
  RETURN_IF_ERROR(Checkpoint());
  return std::vector<bool>(live.rule.begin(), live.rule.end());
}

}  // namespace lm
