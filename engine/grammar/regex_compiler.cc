#include "engine/grammar/regex_compiler.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "engine/base/checkpoint.h"
#include "engine/base/hash_map.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// HOW PLACES ARE DECIDED (^, $, \b, \B)
// Whether a place holds depends on the character before it and the one behind it. So an expression
// with places is drawn as an automaton whose nodes stand on layers: each says what the last
// character was, and what a place that was passed asks of the next one. A class leads from a layer
// to that of its character; a place leads to the layer that asks for more, or nowhere. What no
// character leads to is left out when the automaton is finished.
enum Before { kStart, kWord, kOther };  // nothing yet; a word's character; another one
enum Ahead { kAnyNext, kWordNext, kOtherNext, kEndNext };  // kOtherNext: another one, or the end
constexpr int kLayers = 12;

// Parts of an expression that are drawn, again for each time that they are repeated.
constexpr int64_t kMaxSteps = int64_t{4} * kMaxNodes;

constexpr int LayerOf(int before, int ahead) { return before * 4 + ahead; }

// Both are asked for; -1 where they cannot be.
int Both(int a, int b) {
  if (a == kAnyNext || a == b) return b;
  if (b == kAnyNext) return a;
  return a != kWordNext && b != kWordNext ? kEndNext : -1;
}

// Where to go on from each layer.
constexpr NodeId kNoWay = 0;  // the builder's first node, which is dead
using Ways = std::array<NodeId, kLayers>;

bool HasWords(const RegexTree& tree) {
  if (!tree.has_places) return false;
  if (tree.kind == RegexTree::Kind::kWordBoundary ||
      tree.kind == RegexTree::Kind::kNotWordBoundary) {
    return true;
  }
  return std::any_of(tree.parts.begin(), tree.parts.end(), HasWords);
}

class RegexCompiler {
 public:
  RegexCompiler(TextForm form, AutomatonBuilder* builder) : form_(form), builder_(*builder) {}

  absl::StatusOr<Fragment> Compile(const RegexTree& tree) {
    Fragment fragment;
    if (tree.has_places) {
      has_words_ = HasWords(tree);
      const NodeId end = builder_.AddLink();
      Ways accept;
      for (int layer = 0; layer < kLayers; ++layer) {
        accept[layer] = layer % 4 == kWordNext ? kNoWay : end;
      }
      const NodeId start = Draw(tree, accept)[LayerOf(kStart, kAnyNext)];
      fragment = {start, end};
      if (start == kNoWay) {
        fragment.start = builder_.AddDead(
            "what ^, $, \\b and \\B of the regular expression ask for cannot hold");
      }
    } else {
      fragment = Plain(tree);
    }
    RETURN_IF_ERROR(status_);
    RETURN_IF_ERROR(builder_.status());
    return fragment;
  }

 private:
  bool stopped() const { return !status_.ok() || !builder_.status().ok(); }

  // REQUIRES: no places.
  Fragment Plain(const RegexTree& tree) {
    if (stopped()) return builder_.Empty();
    switch (tree.kind) {
      case RegexTree::Kind::kClass:
        if (!tree.set->empty()) return ClassIn(form_, *tree.set, &builder_);
        return builder_.Nothing(absl::StrCat("the class at byte ", tree.offset,
                                             " of the regular expression has no character"));
      case RegexTree::Kind::kRepeat:
        return builder_.Repeat(Plain(tree.parts[0]), tree.min, tree.max);
      default:
        break;
    }
    std::vector<Fragment> parts;
    for (const RegexTree& part : tree.parts) parts.push_back(Plain(part));
    if (tree.kind == RegexTree::Kind::kAlternatives) return builder_.Alternate(parts);
    return builder_.Concat(parts);
  }

  // Where to go from each layer to match `tree` and then go on with `next`.
  Ways Draw(const RegexTree& tree, const Ways& next) {
    Ways ways{};
    if (++steps_ % 4096 == 0 && status_.ok()) status_ = Checkpoint();
    if (steps_ > kMaxSteps) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat("the grammar is too large: repetitions of ^, $, \\b or \\B need more than ",
                       kMaxSteps, " steps"));
    }
    if (stopped()) return ways;
    if (!tree.has_places && !has_words_ && DrawWhole(tree, next, &ways)) return ways;
    switch (tree.kind) {
      case RegexTree::Kind::kClass:
        return DrawClass(tree, next);
      case RegexTree::Kind::kSequence:
        ways = next;
        for (size_t i = tree.parts.size(); i-- > 0;) ways = Draw(tree.parts[i], ways);
        return ways;
      case RegexTree::Kind::kAlternatives: {
        std::vector<Ways> all;
        for (const RegexTree& part : tree.parts) all.push_back(Draw(part, next));
        return Fork(all);
      }
      case RegexTree::Kind::kRepeat:
        return DrawRepeat(tree, next);
      case RegexTree::Kind::kBegin:
        for (int ahead = 0; ahead < 4; ++ahead) {
          ways[LayerOf(kStart, ahead)] = next[LayerOf(kStart, ahead)];
        }
        return ways;
      default:
        break;
    }
    for (int before = 0; before < 3; ++before) {
      int asks = kEndNext;
      if (tree.kind != RegexTree::Kind::kEnd) {
        const bool is_boundary = tree.kind == RegexTree::Kind::kWordBoundary;
        asks = (before == kWord) == is_boundary ? kOtherNext : kWordNext;
      }
      for (int ahead = 0; ahead < 4; ++ahead) {
        const int both = Both(ahead, asks);
        if (both >= 0) ways[LayerOf(before, ahead)] = next[LayerOf(before, both)];
      }
    }
    return ways;
  }

  // One automaton for what no place is in, where no place asks what its characters are. False where
  // the layer of its end depends on whether it has matched anything, and its parts must tell.
  bool DrawWhole(const RegexTree& tree, const Ways& next, Ways* ways) {
    const NodeId behind = next[LayerOf(kOther, kAnyNext)];
    const bool can_be_empty = tree.min_chars == 0;
    bool same = true;
    for (const int ahead : {kAnyNext, kEndNext}) {
      same = same && next[LayerOf(kStart, ahead)] == next[LayerOf(kOther, ahead)];
    }
    if (can_be_empty && tree.max_chars == 0) {
      *ways = next;
      return true;
    }
    const bool is_counted = tree.kind == RegexTree::Kind::kRepeat && tree.max.value_or(2) > 1 &&
                            (tree.max || tree.min > 1);
    if (can_be_empty && !same && !is_counted) return false;
    if (behind == kNoWay && !can_be_empty) return true;
    NodeId start = kNoWay;
    if (behind != kNoWay) {
      Fragment some;
      if (can_be_empty && !same) {
        const RegexTree& part = tree.parts[0];
        some = builder_.Repeat(part.min_chars > 0 ? Plain(part) : NotEmpty(part), 1, tree.max);
      } else {
        some = Plain(tree);
      }
      builder_.Connect(some.end, behind);
      start = some.start;
    }
    for (const int before : {kStart, kOther}) {
      const NodeId empty = next[LayerOf(before, kAnyNext)];
      (*ways)[LayerOf(before, kAnyNext)] =
          can_be_empty && (!same || behind == kNoWay) ? Fork({start, empty}) : start;
      if (can_be_empty) (*ways)[LayerOf(before, kEndNext)] = next[LayerOf(before, kEndNext)];
    }
    return true;
  }

  // What `tree` matches but the empty text. REQUIRES: no places, !has_words_.
  Fragment NotEmpty(const RegexTree& tree) {
    const NodeId end = builder_.AddLink();
    Ways only{};
    only[LayerOf(kOther, kAnyNext)] = end;
    return {Draw(tree, only)[LayerOf(kStart, kAnyNext)], end};
  }

  Ways DrawClass(const RegexTree& tree, const Ways& next) {
    const Parts& parts = PartsOf(tree);
    const NodeId word = has_words_ ? Way(parts.word, next[LayerOf(kWord, kAnyNext)]) : kNoWay;
    const NodeId other = Way(parts.other, next[LayerOf(kOther, kAnyNext)]);
    const NodeId any = Fork({word, other});
    Ways ways{};
    for (int before = 0; before < 3; ++before) {
      ways[LayerOf(before, kAnyNext)] = any;
      ways[LayerOf(before, kWordNext)] = word;
      ways[LayerOf(before, kOtherNext)] = other;
    }
    return ways;
  }

  Ways DrawRepeat(const RegexTree& tree, const Ways& next) {
    const RegexTree& part = tree.parts[0];
    int64_t min = tree.min;
    std::optional<int64_t> max = tree.max;
    if (part.max_chars == 0) {  // places ask no more the second time
      min = std::min<int64_t>(min, 1);
      max = std::min<int64_t>(max.value_or(1), 1);
    }
    Ways ways = next;
    if (max) {
      for (int64_t i = *max; i-- > min;) {
        const Ways more = Fork({Draw(part, ways), next});
        if (more == ways || stopped()) break;
        ways = more;
      }
    } else {
      Ways loop;
      for (NodeId& link : loop) link = builder_.AddLink();
      const Ways more = Fork({Draw(part, loop), next});
      for (int layer = 0; layer < kLayers; ++layer) {
        ways[layer] = Behind(more[layer], loop, more);
        builder_.Connect(loop[layer], ways[layer]);
      }
    }
    for (int64_t i = 0; i < min; ++i) {
      const Ways more = Draw(part, ways);
      if (more == ways || stopped()) break;
      ways = more;
    }
    return ways;
  }

  // Where `way` leads, if that is to the loop, which goes on with `more`: no link may lead to
  // itself, which is nowhere.
  static NodeId Behind(NodeId way, const Ways& loop, const Ways& more) {
    for (int i = 0; i <= kLayers; ++i) {
      const auto at = std::find(loop.begin(), loop.end(), way);
      if (at == loop.end()) return way;
      way = more[static_cast<size_t>(at - loop.begin())];
    }
    return kNoWay;
  }

  // One character of a set, which is repeated without being drawn again: a rule, or where there is
  // none a range of bytes.
  struct Unit {
    bool is_empty = true;
    uint8_t low = 0;
    uint8_t high = 0;
    RuleId rule = -1;
  };
  struct Parts {
    Unit word;
    Unit other;  // all, where words do not matter
  };

  const Parts& PartsOf(const RegexTree& tree) {
    auto [at, is_new] = parts_.try_emplace(tree.set.get());
    if (!is_new) return at->second;
    if (!has_words_) {
      at->second.other = UnitOf(*tree.set);
      return at->second;
    }
    CodePointSet word = CodePointSet::Of('0', '9');
    word.Add('A', 'Z');
    word.Add('a', 'z');
    word.Add('_');
    at->second = {UnitOf(tree.set->Intersect(word)), UnitOf(tree.set->Minus(word))};
    return at->second;
  }

  Unit UnitOf(const CodePointSet& set) {
    Unit unit;
    if (set.empty()) return unit;
    unit.is_empty = false;
    if (set.ranges().size() == 1 && set.ranges()[0].high < 0x80) {
      const CodePointSet::Range& range = set.ranges()[0];
      unit.low = static_cast<uint8_t>(range.low);
      unit.high = static_cast<uint8_t>(range.high);
      const bool is_plain = form_ == TextForm::kPlain || set.Minus(UnescapedInJson()).empty();
      if (is_plain) return unit;
    }
    unit.rule = builder_.AddRule("a class");
    builder_.Define(unit.rule, ClassIn(form_, set, &builder_));
    return unit;
  }

  NodeId Way(const Unit& unit, NodeId next) {
    if (unit.is_empty || next == kNoWay) return kNoWay;
    if (unit.rule >= 0) return builder_.AddCall(unit.rule, next);
    return builder_.AddBytes(unit.low, unit.high, next);
  }

  NodeId Fork(std::vector<NodeId> targets) {
    std::erase(targets, kNoWay);
    std::sort(targets.begin(), targets.end());
    targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
    return targets.empty() ? kNoWay : builder_.AddFork(targets);
  }

  Ways Fork(const std::vector<Ways>& all) {
    Ways ways;
    for (int layer = 0; layer < kLayers; ++layer) {
      std::vector<NodeId> targets;
      for (const Ways& one : all) targets.push_back(one[layer]);
      ways[layer] = Fork(std::move(targets));
    }
    return ways;
  }

  const TextForm form_;
  AutomatonBuilder& builder_;
  bool has_words_ = false;  // \b or \B is in it
  HashMap<const CodePointSet*, Parts> parts_;
  int64_t steps_ = 0;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<Fragment> CompileRegexTree(const RegexTree& tree, TextForm form,
                                          AutomatonBuilder* builder) {
  return RegexCompiler(form, builder).Compile(tree);
}

}  // namespace lm
