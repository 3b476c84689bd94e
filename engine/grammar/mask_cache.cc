#include "engine/grammar/mask_cache.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr StateId kUnknown = -2;

// Work, of StateMachine's, for a node of a tree, and after how many of them it is counted.
constexpr int64_t kNodeWork = 5;
constexpr int32_t kCountedNodes = 4096;

void SetBit(int32_t token, absl::Span<uint64_t> mask) {
  mask[token / 64] |= uint64_t{1} << (token % 64);
}

}  // namespace

absl::Status Constraint::Cache::StatusOf(Outcome outcome) const {
  switch (outcome) {
    case Outcome::kStateTooLarge:
      return absl::ResourceExhaustedError(absl::StrCat(
          "the grammar is too ambiguous: more than ", StateMachine::kMaxFrames,
          " ways to read the text so far; remove alternatives that match the same text"));
    case Outcome::kTooManyStates:
      return absl::ResourceExhaustedError(
          absl::StrCat("the grammar is too ambiguous: what may come next takes more than ",
                       operation_bytes_ >> 10,
                       " KiB of states; remove alternatives and counts that match the same text"));
    case Outcome::kNotAsked:
    case Outcome::kKnown:
      break;
  }
  return absl::OkStatus();
}

absl::Status Constraint::Cache::status() const {
  if (machine_.paused()) return absl::Status(absl::StatusCode::kUnavailable, "");
  return StatusOf(machine_.exhausted() ? Outcome::kStateTooLarge
                  : too_many_states_   ? Outcome::kTooManyStates
                                       : Outcome::kKnown);
}

void Constraint::Cache::BeginOperation() {
  ++operation_;
  visited_ = 0;
  too_many_states_ = false;
}

absl::Status Constraint::Cache::BeginSteps() {
  while (walk_.has_value()) RETURN_IF_ERROR(FinishWalk());
  BeginOperation();
  return absl::OkStatus();
}

StateId Constraint::Cache::Step(StateId state, uint8_t byte) {
  const StateId next = machine_.Next(state, byte);
  if (next == StateMachine::kNoState) return next;
  if (static_cast<size_t>(next) >= visits_.size()) visits_.resize(machine_.num_states());
  if (visits_[next] == operation_) return next;
  visits_[next] = operation_;
  visited_ += machine_.StateBytes(next);
  too_many_states_ = visited_ > operation_bytes_;
  return too_many_states_ ? StateMachine::kNoState : next;
}

absl::Status Constraint::Cache::Mask(StateId state, absl::Span<const uint64_t>* mask,
                                     size_t* visited) {
  if (static_cast<size_t>(state) >= masks_.size()) masks_.resize(machine_.num_states());
  while (masks_[state].outcome == Outcome::kNotAsked) {
    if (!walk_.has_value()) {
      Walk walk{.state = state};
      walk.mask = std::make_unique<uint64_t[]>(trie_.mask_words());
      walk_ = std::move(walk);
      BeginOperation();
    }
    RETURN_IF_ERROR(FinishWalk());
  }
  const Entry& entry = masks_[state];
  RETURN_IF_ERROR(StatusOf(entry.outcome));
  *mask = absl::MakeConstSpan(entry.mask.get(), trie_.mask_words());
  *visited = entry.visited;
  return absl::OkStatus();
}

absl::Status Constraint::Cache::MaskToEnd(StateId state, int32_t tokens, absl::Span<uint64_t> mask,
                                          bool* left_out, size_t* visited) {
  while (masks_to_end_[state].outcome == Outcome::kNotAsked) {
    if (!walk_.has_value()) {
      walk_ = Walk{.state = state, .to_end = true};
      BeginOperation();
    }
    RETURN_IF_ERROR(FinishWalk());
  }
  const EntryToEnd& entry = masks_to_end_[state];
  RETURN_IF_ERROR(StatusOf(entry.outcome));
  std::fill(mask.begin(), mask.end(), 0);
  *left_out = false;
  for (const auto& [needed, part] : entry.masks) {
    if (needed > tokens) {
      *left_out = true;
      break;
    }
    for (size_t i = 0; i < mask.size(); ++i) mask[i] |= part[i];
  }
  *visited = entry.visited;
  return absl::OkStatus();
}

absl::Status Constraint::Cache::TokensToEnd(StateId state, int32_t* tokens) {
  // The way to the end, or as far as what is known from there on reaches back.
  constexpr int64_t kStepWork = 200;
  const size_t longest_token = static_cast<size_t>(trie_.all().max_depth);
  std::vector<StateId> states = {state};
  std::string way;
  size_t num_known = 0;  // at the end of `states`
  tokens_to_end_.resize(machine_.num_states(), kUnknown);
  while (tokens_to_end_[state] == kUnknown) {
    const StateId last = states.back();
    const int32_t left = machine_.Distance(last);
    if (left > static_cast<int32_t>(kMostBytesToEnd)) {
      tokens_to_end_[state] = kTooFar;
      break;
    }
    num_known += tokens_to_end_[last] != kUnknown;
    if (left == 0 || num_known > longest_token) {
      std::vector<int32_t> to_end(states.size());
      for (size_t i = states.size(); i-- > 0;) {
        int32_t& known = tokens_to_end_[states[i]];
        if (known == kUnknown) {
          known = machine_.Distance(states[i]) == 0
                      ? 0
                      : FewestTokens(absl::string_view(way).substr(i),
                                     absl::MakeConstSpan(to_end).subspan(i));
        }
        to_end[i] = known;
      }
      machine_.Spend(kStepWork * static_cast<int64_t>(way.size()));
      break;
    }
    const uint8_t byte = machine_.NearerByte(last);
    const StateId next = machine_.Next(last, byte);
    if (next == StateMachine::kNoState) {
      if (machine_.paused()) return status();
      tokens_to_end_[state] = kTooFar;  // a state on the way is larger than states may be
      machine_.Resume(machine_.work_left());
      break;
    }
    tokens_to_end_.resize(machine_.num_states(), kUnknown);
    states.push_back(next);
    way.push_back(static_cast<char>(byte));
  }
  *tokens = tokens_to_end_[state];
  return absl::OkStatus();
}

int32_t Constraint::Cache::FewestTokens(absl::string_view way,
                                        absl::Span<const int32_t> to_end) const {
  const TokenTrie::Tree& tree = trie_.all();
  int32_t fewest = kTooFar;
  int32_t i = 0, end = tree.num_nodes();
  for (size_t length = 1; length <= way.size(); ++length) {
    const uint8_t byte = static_cast<uint8_t>(way[length - 1]);
    while (i < end && tree.nodes[i].byte != byte) i = tree.nodes[i].subtree_end;
    if (i >= end) break;
    const bool is_token = tree.nodes[i].tokens_begin < tree.nodes[i + 1].tokens_begin;
    if (is_token && to_end[length] < fewest - 1) fewest = to_end[length] + 1;
    end = tree.nodes[i].subtree_end;
    ++i;
  }
  return fewest;
}

bool Constraint::Cache::AddTokens(StateId state, absl::Span<const int32_t> tokens, Walk* walk) {
  if (tokens.empty()) return true;
  uint64_t* mask = walk->mask.get();
  if (walk->to_end) {
    int32_t needed = 0;
    if (!TokensToEnd(state, &needed).ok()) return false;
    std::unique_ptr<uint64_t[]>& part = walk->masks_to_end[needed];
    if (part == nullptr) part = std::make_unique<uint64_t[]>(trie_.mask_words());
    mask = part.get();
  }
  for (int32_t token : tokens) SetBit(token, absl::MakeSpan(mask, trie_.mask_words()));
  return true;
}

Constraint::Cache::Outcome Constraint::Cache::OutcomeOfWalk() {
  if (machine_.exhausted()) {
    machine_.Resume(machine_.work_left());
    return Outcome::kStateTooLarge;
  }
  return too_many_states_ ? Outcome::kTooManyStates : Outcome::kKnown;
}

absl::Status Constraint::Cache::FinishWalk() {
  try {
    return GoOnWithWalk();
  } catch (...) {  // no memory: its path is not that of its node any more
    walk_.reset();
    throw;
  }
}

absl::Status Constraint::Cache::GoOnWithWalk() {
  Walk& walk = *walk_;
  if (walk.tree == nullptr) {
    // Inside a string or another free text this saves most of the walk.
    const bool plain = !walk.to_end && AllowsAllPlain(walk.state);
    if (machine_.paused()) return status();
    const bool run = !plain && !walk.to_end && AddRun(walk.state, 0, trie_.plain_mask(), &walk);
    if (machine_.paused() && !run) return status();
    // Too large a state that no token may lead to is no matter.
    if (!plain && machine_.exhausted() && !machine_.paused()) machine_.Resume(machine_.work_left());
    walk.tree = plain || run ? &trie_.special() : walk.to_end ? &trie_.all() : &trie_.plain();
    walk.path.assign(trie_.all().max_depth + 1, walk.state);
    if (plain) std::copy(trie_.plain_mask().begin(), trie_.plain_mask().end(), walk.mask.get());
    if (walk.tree == &trie_.plain()) AddFreed(&walk);
  }
  if (!machine_.exhausted()) GoOn(&walk);
  if (machine_.paused() && walk.node < walk.tree->num_nodes()) return status();
  if (walk.tree == &trie_.plain() && !machine_.exhausted() && !too_many_states_) {
    walk.tree = &trie_.special();
    walk.node = 0;
    GoOn(&walk);
    if (machine_.paused() && walk.node < walk.tree->num_nodes()) return status();
  }
  if (machine_.CanEnd(walk.state)) {
    if (walk.to_end && walk.masks_to_end[0] == nullptr) {
      walk.masks_to_end[0] = std::make_unique<uint64_t[]>(trie_.mask_words());
    }
    uint64_t* mask = walk.to_end ? walk.masks_to_end[0].get() : walk.mask.get();
    for (int32_t token : trie_.end_of_generation()) {
      SetBit(token, absl::MakeSpan(mask, trie_.mask_words()));
    }
  }
  const Outcome outcome = OutcomeOfWalk();
  const size_t num_masks = walk.to_end ? walk.masks_to_end.size() : 1;
  if (outcome == Outcome::kKnown) {
    mask_bytes_ += num_masks * trie_.mask_words() * sizeof(uint64_t);
  } else {
    walk.mask.reset();
    walk.masks_to_end.clear();
  }
  if (walk.to_end) {
    masks_to_end_[walk.state] = {outcome, std::move(walk.masks_to_end), visited_};
  } else {
    Entry& entry = masks_[walk.state];
    entry.visited = visited_;
    entry.outcome = outcome;
    entry.mask = std::move(walk.mask);
  }
  walk_.reset();
  return absl::OkStatus();
}

void Constraint::Cache::GoOn(Walk* walk) {
  const TokenTrie::Tree& tree = *walk->tree;
  const int32_t num_nodes = tree.num_nodes();
  int32_t i = walk->node;
  int32_t uncounted = 0;
  while (i < num_nodes) {
    const TokenTrie::Node& node = tree.nodes[i];
    if (&tree == &trie_.plain() && Frees(walk->path[node.depth - 1], node)) {
      uncounted += node.depth > 1 || !walk->freed ? AddSubtree(node, walk) : 1;
      i = node.subtree_end;
      continue;
    }
    const StateId next = Step(walk->path[node.depth - 1], node.byte);
    if (next != StateMachine::kNoState) {
      walk->path[node.depth] = next;
      if (AddAllBelow(node, next, walk)) {
        uncounted += (tree.nodes[node.subtree_end].tokens_begin - node.tokens_begin) / 16;
        i = node.subtree_end;
        continue;
      }
      if (machine_.paused()) break;
      const int32_t num_tokens = tree.nodes[i + 1].tokens_begin - node.tokens_begin;
      if (!AddTokens(next, absl::MakeConstSpan(tree.tokens).subspan(node.tokens_begin, num_tokens),
                     walk)) {
        break;
      }
      ++i;
    } else if (machine_.stopped() || too_many_states_) {
      break;
    } else {
      i = node.subtree_end;
    }
    if (++uncounted < kCountedNodes) continue;
    uncounted = 0;
    if (!machine_.Spend(kCountedNodes * kNodeWork)) break;
  }
  machine_.Spend(uncounted * kNodeWork);
  walk->node = i;
}

bool Constraint::Cache::AddAllBelow(const TokenTrie::Node& node, StateId state, Walk* walk) {
  constexpr int32_t kWorthALook = 32;
  const TokenTrie::Tree& tree = *walk->tree;
  const int32_t end = tree.nodes[node.subtree_end].tokens_begin;
  if (&tree != &trie_.plain() || end - node.tokens_begin < kWorthALook) return false;
  const absl::Span<const uint64_t> whole =
      node.depth == 1 ? trie_.PlainMaskOf(node.byte) : absl::Span<const uint64_t>();
  if (!AllowsAllPlain(state)) {
    if (!machine_.stopped()) KindsOf(state);  // for Frees
    const bool run =
        !machine_.stopped() && node.byte < 0x80 && !whole.empty() && AddRun(state, 1, whole, walk);
    // Too large a state that no token may lead to is no matter.
    if (machine_.exhausted() && !machine_.paused()) machine_.Resume(machine_.work_left());
    return run;
  }
  AddSubtree(node, walk);
  return true;
}

int32_t Constraint::Cache::AddSubtree(const TokenTrie::Node& node, Walk* walk) {
  const TokenTrie::Tree& tree = trie_.plain();
  uint64_t* const mask = walk->mask.get();
  const absl::Span<const uint64_t> whole =
      node.depth == 1 ? trie_.PlainMaskOf(node.byte) : absl::Span<const uint64_t>();
  for (size_t word = 0; word < whole.size(); ++word) mask[word] |= whole[word];
  const int32_t end = tree.nodes[node.subtree_end].tokens_begin;
  if (whole.empty()) {
    for (int32_t i = node.tokens_begin; i < end; ++i) {
      SetBit(tree.tokens[i], absl::MakeSpan(mask, trie_.mask_words()));
    }
  }
  return (end - node.tokens_begin) / 16 + 1;
}

void Constraint::Cache::AddFreed(Walk* walk) {
  constexpr size_t kMost = 3 * TokenTrie::kNumKinds / 5;  // there are some 94 plain ones
  const Kinds* const kinds = KindsOf(walk->state);
  if (kinds == nullptr || !kinds->frees || kinds->to_target.count() < kMost) return;
  uint64_t* const mask = walk->mask.get();
  std::copy(trie_.plain_mask().begin(), trie_.plain_mask().end(), mask);
  const TokenTrie::Tree& tree = trie_.plain();
  for (int32_t i = 0; i < tree.num_nodes(); i = tree.nodes[i].subtree_end) {
    const TokenTrie::Node& node = tree.nodes[i];
    if (kinds->to_target[TokenTrie::KindOf(node.byte)]) continue;
    const int32_t end = tree.nodes[node.subtree_end].tokens_begin;
    for (int32_t at = node.tokens_begin; at < end; ++at) {
      const int32_t token = tree.tokens[at];
      mask[token / 64] &= ~(uint64_t{1} << (token % 64));
    }
  }
  walk->freed = true;
}

bool Constraint::Cache::AddRun(StateId state, int from, absl::Span<const uint64_t> among,
                               Walk* walk) {
  constexpr size_t kFewKinds = 12;       // of which tokens are soon walked
  constexpr int32_t kFewTokens = 3000;   // likewise
  constexpr int64_t kLookedAtWork = 30;  // a token
  const Kinds* const kinds = KindsOf(state);
  if (kinds == nullptr || kinds->to_target.count() < kFewKinds) return false;
  int32_t begin = 0, elsewhere = 0;
  for (int kind = 0; kind < TokenTrie::kNumKinds; ++kind) {
    if (kinds->to_target[kind] || kinds->elsewhere[kind]) begin += trie_.NumPlainFrom(kind);
    if (kinds->elsewhere[kind]) elsewhere += trie_.NumPlainWith(kind);
  }
  if (begin < kFewTokens || 4 * elsewhere > begin || !IsRun(state)) return false;
  std::vector<uint64_t> others(trie_.mask_words()), looked_at(trie_.mask_words());
  for (int kind = 0; kind < TokenTrie::kNumKinds; ++kind) {
    const absl::Span<const uint64_t> with = trie_.PlainMaskWith(kind, from);
    if (with.empty() || kinds->to_target[kind]) continue;
    for (size_t word = 0; word < with.size(); ++word) others[word] |= with[word];
    if (!kinds->elsewhere[kind]) continue;
    for (size_t word = 0; word < with.size(); ++word) looked_at[word] |= with[word];
  }
  uint64_t* const mask = walk->mask.get();
  int64_t work = static_cast<int64_t>(among.size()) * TokenTrie::kNumKinds / 8;
  for (size_t word = 0; word < among.size(); ++word) {
    mask[word] |= among[word] & ~others[word];
    for (uint64_t left = among[word] & looked_at[word]; left != 0; left &= left - 1) {
      const auto token = static_cast<int32_t>(64 * word) + std::countr_zero(left);
      StateId at = state;
      for (const char c : trie_.TokenBytes(token).substr(from)) {
        at = Step(at, static_cast<uint8_t>(c));
        if (at == StateMachine::kNoState) break;
      }
      if (at != StateMachine::kNoState) mask[word] |= left & -left;
      if (machine_.stopped() || too_many_states_) return false;
      work += kLookedAtWork;
    }
  }
  machine_.Spend(work);  // it is done: who goes on next has less
  return true;
}

bool Constraint::Cache::IsRun(StateId state) {
  const Kinds* const first = KindsOf(state);
  if (first == nullptr || first->target == state) return first != nullptr;
  StateId at = state;
  for (int i = 0; i < TokenTrie::kMaxPlainChars; ++i) {
    const Kinds* const kinds = KindsOf(at);
    if (kinds == nullptr || kinds->elsewhere.any()) return false;
    if (kinds->to_target != KindsOf(state)->to_target) return false;
    if (kinds->target == at) return true;
    at = kinds->target;
  }
  return true;
}

const Constraint::Cache::Kinds* Constraint::Cache::KindsOf(StateId state) {
  if (static_cast<size_t>(state) >= kinds_.size()) kinds_.resize(machine_.num_states());
  if (kinds_[state] == nullptr) {
    auto kinds = std::make_unique<const Kinds>(ComputeKinds(state));
    if (machine_.stopped()) return nullptr;
    kinds_[state] = std::move(kinds);
  }
  return kinds_[state].get();
}

Constraint::Cache::Kinds Constraint::Cache::ComputeKinds(StateId state) {
  constexpr StateId kNone = StateMachine::kNoState;
  Kinds kinds;
  std::array<StateId, TokenTrie::kOtherKind> next;
  next.fill(kNone);
  StateId candidate = kNone;  // a majority's, if there is one
  int lead = 0;
  for (int byte = ' '; byte < 0x7f; ++byte) {
    if (byte == '"' || byte == '\\') continue;
    next[byte] = machine_.Next(state, static_cast<uint8_t>(byte));
    if (next[byte] == kNone) continue;
    if (lead == 0) candidate = next[byte];
    lead += next[byte] == candidate ? 1 : -1;
    if (next[byte] == state) kinds.target = state;
  }
  if (kinds.target == kNone) kinds.target = candidate;
  if (kinds.target == kNone) return kinds;
  for (int byte = ' '; byte < 0x7f; ++byte) {
    kinds.to_target[byte] = next[byte] == kinds.target;
    kinds.elsewhere[byte] = next[byte] != kNone && next[byte] != kinds.target;
  }
  const bool none = OtherCharacters(state, kNone);
  kinds.to_target[TokenTrie::kOtherKind] = !none && OtherCharacters(state, kinds.target);
  kinds.elsewhere[TokenTrie::kOtherKind] = !none && !kinds.to_target[TokenTrie::kOtherKind];
  kinds.frees = AllowsAllPlain(kinds.target);
  return kinds;
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
    if (machine_.stopped()) return StateMachine::kNoState;
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
  return OtherCharacters(state, target) ? target : kNone;
}

bool Constraint::Cache::OtherCharacters(StateId state, StateId target) {
  constexpr StateId kNone = StateMachine::kNoState;
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
      if ((after == kNone) != (target == kNone)) return false;
      if (after == checked) continue;
      if (!AllLeadTo(target, after, lead.second_low, lead.second_high, lead.more)) return false;
      checked = after;
    }
  }
  return true;
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
