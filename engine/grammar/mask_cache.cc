#include "engine/grammar/mask_cache.h"

#include <algorithm>

namespace lm {
namespace {

constexpr StateId kUnknown = -2;

void SetBit(int32_t token, absl::Span<uint64_t> mask) {
  mask[token / 64] |= uint64_t{1} << (token % 64);
}

}  // namespace

absl::Span<const uint64_t> Constraint::Cache::Mask(StateId state) {
  const size_t words = trie_.mask_words();
  if (static_cast<size_t>(state) >= masks_.size()) masks_.resize(machine_.num_states());
  if (masks_[state] == nullptr) {
    auto mask = std::make_unique<uint64_t[]>(words);
    ComputeMask(state, absl::MakeSpan(mask.get(), words));
    if (machine_.exhausted()) return {};
    masks_[state] = std::move(mask);
    mask_bytes_ += words * sizeof(uint64_t);
  }
  return absl::MakeConstSpan(masks_[state].get(), words);
}

void Constraint::Cache::ComputeMask(StateId state, absl::Span<uint64_t> mask) {
  // Inside a string or another free text this saves most of the walk.
  if (AllowsAllPlain(state)) {
    std::copy(trie_.plain_mask().begin(), trie_.plain_mask().end(), mask.begin());
    Walk(trie_.special(), state, mask);
  } else {
    Walk(trie_.all(), state, mask);
  }
  if (!machine_.CanEnd(state)) return;
  for (int32_t token : trie_.end_of_generation()) SetBit(token, mask);
}

void Constraint::Cache::Walk(const TokenTrie::Tree& tree, StateId state,
                             absl::Span<uint64_t> mask) {
  path_.resize(tree.max_depth + 1);  // the state after each byte of the current branch
  path_[0] = state;
  const int32_t num_nodes = tree.num_nodes();
  for (int32_t i = 0; i < num_nodes;) {
    const TokenTrie::Node& node = tree.nodes[i];
    const StateId next = machine_.Next(path_[node.depth - 1], node.byte);
    if (next == StateMachine::kNoState) {
      if (machine_.exhausted()) return;
      i = node.subtree_end;
      continue;
    }
    path_[node.depth] = next;
    for (int32_t t = node.tokens_begin; t < tree.nodes[i + 1].tokens_begin; ++t) {
      SetBit(tree.tokens[t], mask);
    }
    ++i;
  }
}

bool Constraint::Cache::AllowsAllPlain(StateId state) {
  for (int i = 0; i < TokenTrie::kMaxPlainChars; ++i) {
    const StateId next = AfterPlain(state);
    if (next == StateMachine::kNoState) return false;
    if (next == state) return true;
    state = next;
  }
  return true;
}

StateId Constraint::Cache::AfterPlain(StateId state) {
  if (static_cast<size_t>(state) >= after_plain_.size()) {
    after_plain_.resize(machine_.num_states(), kUnknown);
  }
  if (after_plain_[state] == kUnknown) {
    const StateId next = ComputeAfterPlain(state);
    if (machine_.exhausted()) return StateMachine::kNoState;
    after_plain_[state] = next;
  }
  return after_plain_[state];
}

StateId Constraint::Cache::ComputeAfterPlain(StateId state) {
  constexpr StateId kNone = StateMachine::kNoState;
  const StateId target = machine_.Next(state, ' ');
  if (target == kNone) return kNone;
  for (int byte = '!'; byte < 0x7f; ++byte) {
    if (byte == '"' || byte == '\\') continue;
    if (machine_.Next(state, static_cast<uint8_t>(byte)) != target) return kNone;
  }
  // The lead bytes of UTF-8, with what may come second.
  struct Lead {
    int low, high, second_low, second_high, more;
  };
  constexpr Lead kLeads[] = {{0xc2, 0xdf, 0x80, 0xbf, 0}, {0xe0, 0xe0, 0xa0, 0xbf, 1},
                             {0xe1, 0xec, 0x80, 0xbf, 1}, {0xed, 0xed, 0x80, 0x9f, 1},
                             {0xee, 0xef, 0x80, 0xbf, 1}, {0xf0, 0xf0, 0x90, 0xbf, 2},
                             {0xf1, 0xf3, 0x80, 0xbf, 2}, {0xf4, 0xf4, 0x80, 0x8f, 2}};
  for (const Lead& lead : kLeads) {
    StateId checked = kNone;
    for (int byte = lead.low; byte <= lead.high; ++byte) {
      const StateId after = machine_.Next(state, static_cast<uint8_t>(byte));
      if (after == kNone) return kNone;
      if (after == checked) continue;
      if (!AllLeadTo(target, after, lead.second_low, lead.second_high, lead.more)) return kNone;
      checked = after;
    }
  }
  return target;
}

bool Constraint::Cache::AllLeadTo(StateId target, StateId from, int low, int high, int more) {
  StateId checked = StateMachine::kNoState;
  for (int byte = low; byte <= high; ++byte) {
    const StateId after = machine_.Next(from, static_cast<uint8_t>(byte));
    if (after == StateMachine::kNoState) return false;
    if (after == checked) continue;
    if (more == 0 ? after != target : !AllLeadTo(target, after, 0x80, 0xbf, more - 1)) return false;
    checked = after;
  }
  return true;
}

}  // namespace lm
