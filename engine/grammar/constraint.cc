#include "engine/grammar/constraint.h"

#include <algorithm>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/grammar/mask_cache.h"

namespace lm {
namespace {

absl::Status Exhausted() {
  return absl::ResourceExhaustedError(
      "the grammar is too ambiguous: too many ways to read the text so far; remove alternatives "
      "that match the same text");
}

void SetPosition(StateMachine* machine, StateId state, Constraint::Position* position) {
  position->state = state;
  position->can_end = machine->CanEnd(state);
  position->is_complete = machine->IsComplete(state);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Constraint>> Constraint::Create(
    std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
    size_t cache_bytes) {
  std::shared_ptr<Constraint> constraint(
      new Constraint(std::move(grammar), std::move(trie), cache_bytes));
  if (constraint->Start().state == StateMachine::kNoState) return Exhausted();
  return constraint;
}

Constraint::Constraint(std::shared_ptr<const Grammar> grammar,
                       std::shared_ptr<const TokenTrie> trie, size_t cache_bytes)
    : grammar_(std::move(grammar)),
      trie_(std::move(trie)),
      cache_bytes_(cache_bytes),
      cache_(std::make_shared<Cache>(&grammar_->automaton(), trie_.get())) {}

Constraint::Position Constraint::Start() {
  absl::MutexLock lock(&mutex_);
  Position position;
  position.cache = cache_;
  const StateId start = cache_->machine().start();
  if (start != StateMachine::kNoState) SetPosition(&cache_->machine(), start, &position);
  return position;
}

Constraint::Cache& Constraint::Enter(Position* position) {
  if (cache_->bytes() > cache_bytes_) {
    cache_ = std::make_shared<Cache>(&grammar_->automaton(), trie_.get());
  }
  if (position->cache != cache_) {
    position->state = cache_->machine().Import(position->cache->machine(), position->state);
    position->cache = cache_;
  }
  cache_->machine().ResetWork();
  return *cache_;
}

absl::Status Constraint::FillMask(Position* position, absl::Span<uint64_t> mask) {
  absl::MutexLock lock(&mutex_);
  Cache& cache = Enter(position);
  const absl::Span<const uint64_t> found = cache.Mask(position->state);
  if (found.size() != mask.size()) return Exhausted();
  std::copy(found.begin(), found.end(), mask.begin());
  return absl::OkStatus();
}

absl::StatusOr<bool> Constraint::Advance(Position* position, absl::string_view bytes) {
  absl::MutexLock lock(&mutex_);
  StateMachine& machine = Enter(position).machine();
  StateId state = position->state;
  for (char c : bytes) {
    state = machine.Next(state, static_cast<uint8_t>(c));
    if (machine.exhausted()) return Exhausted();
    if (state == StateMachine::kNoState) return false;
  }
  SetPosition(&machine, state, position);
  return true;
}

absl::StatusOr<std::string> Constraint::SkipForced(Position* position, size_t limit) {
  absl::MutexLock lock(&mutex_);
  StateMachine& machine = Enter(position).machine();
  std::string bytes;
  StateId state = position->state;
  while (bytes.size() < limit) {
    const int byte = machine.ForcedByte(state);
    if (byte < 0) break;
    const StateId next = machine.Next(state, static_cast<uint8_t>(byte));
    if (machine.exhausted()) return Exhausted();
    state = next;
    bytes.push_back(static_cast<char>(byte));
  }
  SetPosition(&machine, state, position);
  return bytes;
}

absl::StatusOr<bool> Constraint::SomeTokenGoesOn(Position position, absl::string_view tail) {
  absl::MutexLock lock(&mutex_);
  StateMachine& machine = Enter(&position).machine();
  const TokenTrie::Tree& tree = trie_->all();
  // Down to the node of `tail`: the first of its subtree's nodes is the next one.
  int32_t i = 0, end = tree.num_nodes();
  for (char c : tail) {
    while (i < end && tree.nodes[i].byte != static_cast<uint8_t>(c)) i = tree.nodes[i].subtree_end;
    if (i >= end) return false;
    end = tree.nodes[i].subtree_end;
    ++i;
  }
  std::vector<StateId> path(tree.max_depth + 1, position.state);
  while (i < end) {
    const TokenTrie::Node& node = tree.nodes[i];
    const StateId next = machine.Next(path[node.depth - 1], node.byte);
    if (machine.exhausted()) return Exhausted();
    if (next == StateMachine::kNoState) {
      i = node.subtree_end;
      continue;
    }
    if (node.tokens_begin < tree.nodes[i + 1].tokens_begin) return true;
    path[node.depth] = next;
    ++i;
  }
  return false;
}

}  // namespace lm
