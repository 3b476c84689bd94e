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
  if (!status_.ok() && absl::IsCancelled(status_)) return 0;
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

RuleId AutomatonBuilder::AddAll(const AutomatonBuilder& other) {
  if (!other.status_.ok()) status_ = other.status_;
  const RuleId first_rule = static_cast<RuleId>(rule_start_.size());
  const NodeId first_node = static_cast<NodeId>(nodes_.size());
  if (nodes_.size() + other.nodes_.size() > kMaxNodes ||
      rule_start_.size() + other.rule_start_.size() > kMaxRules) {
    status_ = absl::InvalidArgumentError("the grammar is too large");
  }
  if (!status_.ok()) return 0;
  nodes_.reserve(nodes_.size() + other.nodes_.size());
  for (Node node : other.nodes_) {
    if (node.next >= 0) node.next += first_node;
    if (node.other >= 0) node.other += first_node;
    if (node.rule >= 0) node.rule += first_rule;
    nodes_.push_back(node);
  }
  for (const NodeId start : other.rule_start_) rule_start_.push_back(start + first_node);
  rule_names_.insert(rule_names_.end(), other.rule_names_.begin(), other.rule_names_.end());
  for (const auto& [dead, why] : other.why_dead_) why_dead_[dead + first_node] = why;
  return first_rule;
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
    for (size_t child = trie[i].first_child; child != 0;) {
      const uint8_t first = trie[child].byte;
      uint8_t last = first;
      const NodeId target = start[child];
      // Neighbours behind which nothing comes are one range.
      for (child = trie[child].next_sibling;
           child != 0 && target == end && start[child] == end && trie[child].byte == last + 1;
           child = trie[child].next_sibling) {
        ++last;
      }
      ways.push_back(AddBytes(first, last, target));
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

NodeId AutomatonBuilder::AddUnit(const Unit& unit, NodeId next, NodeId end) {
  if (unit.rule < 0) return AddBytes(unit.low, unit.high, next);
  return AddNode({NodeKind::kCall, 0, 0, next, end, unit.rule});
}

Fragment AutomatonBuilder::Chain(const Unit& unit, int64_t min, int64_t max) {
  const NodeId end = AddLink();
  NodeId start = end;
  for (int64_t i = max; i-- > 0 && status_.ok();) {
    start = AddUnit(unit, start, end);
    if (i >= min) start = AddSplit(start, end);
  }
  return {start, end};
}

Fragment AutomatonBuilder::Repeat(Fragment a, int64_t min, std::optional<int64_t> max) {
  if (max == 0) return Empty();
  if (max == 1) return min == 1 ? a : Optional(a);
  if (!max && min == 0) return Star(a);
  if (!max && min == 1) return Plus(a);
  // One byte range is repeated as it is; anything else becomes a rule, so that its size does not
  // multiply.
  const Node node = nodes_[a.start];
  Unit unit{node.low, node.high};
  if (node.kind != NodeKind::kBytes || node.next != a.end) {
    unit.rule = AddRule("a repeated group");
    Define(unit.rule, a);
  }
  // The first kMostChained are drawn one by one; far more are blocks, so that the grammar is as
  // large as the root of the count and not as the count.
  constexpr int64_t kMostChained = 1024, kBlock = 256;
  Unit block;
  auto exactly = [&](int64_t count) {
    const Fragment few = Chain(unit, count % kBlock, count % kBlock);
    return count < kBlock ? few : Concat(Chain(block, count / kBlock, count / kBlock), few);
  };
  if (std::max(min, max.value_or(min) - min) > kMostChained) {
    block.rule = AddRule("a block of a repeated group");
    Define(block.rule, Chain(unit, kBlock, kBlock));
  }
  Fragment all = min > kMostChained ? exactly(min) : Chain(unit, min, min);
  if (!max) {
    const NodeId end = AddLink();
    const NodeId loop = AddSplit(0, end);
    nodes_[loop].next = AddUnit(unit, loop, end);
    return Concat(all, {loop, end});
  }
  const int64_t more = *max - min;
  if (more <= kMostChained) return Concat(all, Chain(unit, 0, more));
  // Behind the first `chained` any number of blocks, and then less than one.
  const int64_t blocks = (more - kMostChained) / kBlock;
  const int64_t chained = more - blocks * kBlock - (kBlock - 1);
  const Fragment behind = Concat(Chain(block, 0, blocks), Chain(unit, 0, kBlock - 1));
  NodeId start = behind.start;
  for (int64_t i = 0; i < chained && status_.ok(); ++i) {
    start = AddSplit(AddUnit(unit, start, behind.end), behind.end);
  }
  return Concat(all, {start, behind.end});
}

absl::StatusOr<Automaton> AutomatonBuilder::Build(RuleId root, RuleNamer name_of) && {
  RETURN_IF_ERROR(status_);
  auto name = [&](RuleId rule) {
    return rule_names_[rule].empty() ? name_of(rule) : rule_names_[rule];
  };
  return FinishAutomaton(std::move(nodes_), std::move(rule_start_), name, why_dead_, root);
}

absl::StatusOr<Automaton> AutomatonBuilder::Build(RuleId root) && {
  return std::move(*this).Build(root, [](RuleId) { return std::string(); });
}

}  // namespace lm
