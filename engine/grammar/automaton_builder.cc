#include "engine/grammar/automaton_builder.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/finish_automaton.h"
#include "engine/grammar/utf8_ranges.h"

namespace lm {

AutomatonBuilder::AutomatonBuilder() {
  nodes_.push_back({});  // what every node beyond the limit turns into
}

NodeId AutomatonBuilder::AddNode(const Node& node) {
  if (nodes_.size() >= kMaxNodes) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat("the grammar is too large: it needs more than ", kMaxNodes, " nodes"));
    return 0;
  }
  if (nodes_.size() % 4096 == 0 && status_.ok()) status_ = Checkpoint();
  if (absl::IsCancelled(status_)) return 0;
  nodes_.push_back(node);
  return static_cast<NodeId>(nodes_.size() - 1);
}

NodeId AutomatonBuilder::AddBytes(uint8_t low, uint8_t high, NodeId next) {
  return AddNode({NodeKind::kBytes, low, high, next, -1, -1});
}
NodeId AutomatonBuilder::AddSplit(NodeId next, NodeId other) {
  return AddNode({NodeKind::kSplit, 0, 0, next, other, -1});
}
NodeId AutomatonBuilder::AddCall(RuleId rule, NodeId next) {
  return AddNode({NodeKind::kCall, 0, 0, next, next, rule});
}
NodeId AutomatonBuilder::AddDead(std::string why) {
  const NodeId dead = AddNode({});
  if (!why.empty() && dead != 0) why_dead_[dead] = std::move(why);
  return dead;
}
NodeId AutomatonBuilder::AddLink() { return AddNode({NodeKind::kLink, 0, 0, -1, -1, -1}); }

NodeId AutomatonBuilder::AddFork(absl::Span<const NodeId> targets) {
  if (targets.empty()) return AddDead();
  NodeId fork = targets.back();
  for (size_t i = targets.size() - 1; i-- > 0;) fork = AddSplit(targets[i], fork);
  return fork;
}

RuleId AutomatonBuilder::AddRule(absl::string_view name) {
  if (rule_start_.size() >= kMaxRules) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat("the grammar is too large: it needs more than ", kMaxRules, " rules"));
    return 0;
  }
  rule_start_.push_back(-1);
  rule_names_.emplace_back(name);
  return static_cast<RuleId>(rule_start_.size() - 1);
}

void AutomatonBuilder::Define(RuleId rule, Fragment body) {
  Connect(body.end, AddNode({NodeKind::kFinal, 0, 0, -1, -1, -1}));
  rule_start_[rule] = body.start;
}

Fragment AutomatonBuilder::Empty() {
  NodeId link = AddLink();
  return {link, link};
}

Fragment AutomatonBuilder::Nothing(std::string why) { return {AddDead(std::move(why)), AddLink()}; }

Fragment AutomatonBuilder::Literal(absl::string_view text) {
  const NodeId end = AddLink();
  NodeId next = end;
  for (size_t i = text.size(); i-- > 0;) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    next = AddBytes(byte, byte, next);
  }
  return {next, end};
}

Fragment AutomatonBuilder::AnyLiteral(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  // A trie; a node's children are made after it. 0 is no child.
  struct TrieNode {
    uint8_t byte = 0;
    bool is_text = false;
    size_t first_child = 0, last_child = 0, next_sibling = 0;
  };
  std::vector<TrieNode> trie(1);
  size_t number = 0;
  for (const std::string& text : texts) {
    if (++number % 1024 == 0 && status_.ok()) status_ = Checkpoint();
    if (absl::IsCancelled(status_)) return Nothing("");
    size_t at = 0;
    for (char c : text) {
      const uint8_t byte = static_cast<uint8_t>(c);
      // Sorted texts: an existing child can only be the last one.
      const size_t last = trie[at].last_child;
      if (last == 0 || trie[last].byte != byte) {
        if (trie.size() > kMaxNodes) break;
        (last == 0 ? trie[at].first_child : trie[last].next_sibling) = trie.size();
        trie[at].last_child = trie.size();
        trie.emplace_back().byte = byte;
      }
      at = trie[at].last_child;
    }
    trie[at].is_text = true;
  }
  if (texts.empty()) return Nothing("");
  const NodeId end = AddLink();
  std::vector<NodeId> start(trie.size());
  std::vector<NodeId> ways;
  for (size_t i = trie.size(); i-- > 0;) {
    ways.clear();
    for (size_t child = trie[i].first_child; child != 0; child = trie[child].next_sibling) {
      ways.push_back(AddBytes(trie[child].byte, trie[child].byte, start[child]));
    }
    if (trie[i].is_text) ways.push_back(end);
    start[i] = AddFork(ways);
  }
  return {start[0], end};
}

Fragment AutomatonBuilder::Class(const CodePointSet& set) {
  std::vector<Utf8Sequence> sequences;
  for (const CodePointSet::Range& range : set.ranges()) {
    AppendUtf8Sequences(range.low, range.high, &sequences);
  }
  const NodeId end = AddLink();
  // Equal tails are one chain of nodes.
  std::map<std::tuple<uint8_t, uint8_t, NodeId>, NodeId> shared;
  std::vector<NodeId> starts;
  for (const Utf8Sequence& sequence : sequences) {
    NodeId next = end;
    for (int i = sequence.length; i-- > 0;) {
      const ByteRange& range = sequence.bytes[i];
      auto [at, is_new] = shared.try_emplace({range.low, range.high, next}, -1);
      if (is_new) at->second = AddBytes(range.low, range.high, next);
      next = at->second;
    }
    starts.push_back(next);
  }
  return {AddFork(starts), end};
}

Fragment AutomatonBuilder::Call(RuleId rule) {
  const NodeId end = AddLink();
  return {AddCall(rule, end), end};
}

Fragment AutomatonBuilder::Concat(Fragment a, Fragment b) {
  Connect(a.end, b.start);
  return {a.start, b.end};
}

Fragment AutomatonBuilder::Concat(absl::Span<const Fragment> parts) {
  if (parts.empty()) return Empty();
  Fragment all = parts[0];
  for (const Fragment& part : parts.subspan(1)) all = Concat(all, part);
  return all;
}

Fragment AutomatonBuilder::Alternate(absl::Span<const Fragment> alternatives) {
  if (alternatives.size() == 1) return alternatives[0];
  const NodeId end = AddLink();
  std::vector<NodeId> starts;
  for (const Fragment& alternative : alternatives) {
    Connect(alternative.end, end);
    starts.push_back(alternative.start);
  }
  return {AddFork(starts), end};
}

Fragment AutomatonBuilder::Optional(Fragment a) {
  const NodeId end = AddLink();
  Connect(a.end, end);
  return {AddSplit(a.start, end), end};
}

Fragment AutomatonBuilder::Star(Fragment a) {
  const NodeId end = AddLink();
  const NodeId loop = AddSplit(a.start, end);
  Connect(a.end, loop);
  return {loop, end};
}

Fragment AutomatonBuilder::Plus(Fragment a) {
  const NodeId end = AddLink();
  Connect(a.end, AddSplit(a.start, end));
  return {a.start, end};
}

Fragment AutomatonBuilder::Repeat(Fragment a, int64_t min, std::optional<int64_t> max) {
  if (max == 0) return Empty();
  if (max == 1) return min == 1 ? a : Optional(a);
  if (!max && min == 0) return Star(a);
  if (!max && min == 1) return Plus(a);
  const NodeId end = AddLink();
  // One byte range is repeated as it is; anything else becomes a rule, so that its size does not
  // multiply. A call's way around an empty match leads to the end at once: once a copy is empty,
  // the others may be.
  const Node node = nodes_[a.start];
  const bool is_byte = node.kind == NodeKind::kBytes && node.next == a.end;
  RuleId rule = -1;
  if (!is_byte) {
    rule = AddRule("a repeated group");
    Define(rule, a);
  }
  auto add = [&](NodeId next) {
    return is_byte ? AddBytes(node.low, node.high, next)
                   : AddNode({NodeKind::kCall, 0, 0, next, end, rule});
  };
  NodeId start = end;
  if (!max) {
    start = AddSplit(0, end);
    nodes_[start].next = add(start);
  }
  for (int64_t i = max.value_or(min); i-- > 0 && status_.ok();) {
    start = add(start);
    if (i >= min) start = AddSplit(start, end);
  }
  return {start, end};
}

absl::StatusOr<Automaton> AutomatonBuilder::Build(RuleId root) && {
  RETURN_IF_ERROR(status_);
  return FinishAutomaton(std::move(nodes_), std::move(rule_start_), rule_names_, why_dead_, root);
}

}  // namespace lm
