#include "engine/grammar/constraint.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/grammar/mask_cache.h"

namespace lm {
namespace {

// An operation's turn on a machine.
class Turn {
 public:
  Turn(StateMachine* machine, int64_t* work) : machine_(*machine), work_(work) {
    machine_.Resume(work != nullptr ? *work : std::numeric_limits<int64_t>::max());
  }
  ~Turn() {
    if (work_ != nullptr) *work_ = machine_.work_left();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  StateMachine& machine_;
  int64_t* const work_;
};

void SetPosition(StateMachine* machine, StateId state, Constraint::Position* position) {
  position->state = state;
  position->can_end = machine->CanEnd(state);
  position->is_complete = machine->IsComplete(state);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Constraint>> Constraint::Create(
    std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
    size_t cache_bytes, size_t operation_bytes) {
  std::shared_ptr<Constraint> constraint(
      new Constraint(std::move(grammar), std::move(trie), cache_bytes, operation_bytes));
  absl::MutexLock lock(&constraint->mutex_);
  RETURN_IF_ERROR(constraint->cache_->status());
  return constraint;
}

Constraint::Constraint(std::shared_ptr<const Grammar> grammar,
                       std::shared_ptr<const TokenTrie> trie, size_t cache_bytes,
                       size_t operation_bytes)
    : grammar_(std::move(grammar)),
      trie_(std::move(trie)),
      cache_bytes_(cache_bytes),
      operation_bytes_(operation_bytes),
      cache_(NewCache()) {}

std::shared_ptr<Constraint::Cache> Constraint::NewCache() const {
  return std::make_shared<Cache>(&grammar_->automaton(), trie_.get(), operation_bytes_);
}

Constraint::Position Constraint::Start() {
  absl::MutexLock lock(&mutex_);
  Position position;
  position.cache = cache_;
  const StateId start = cache_->machine().start();
  if (start != StateMachine::kNoState) SetPosition(&cache_->machine(), start, &position);
  return position;
}

void Constraint::Settle(Position* position) {
  absl::MutexLock lock(&mutex_);
  if (cache_->bytes() > cache_bytes_) cache_ = NewCache();
  if (position->cache == cache_) return;
  position->state = cache_->machine().Import(position->cache->machine(), position->state);
  position->cache = cache_;
}

absl::StatusOr<Constraint::MaskCost> Constraint::FillMask(const Position& position,
                                                          std::optional<int32_t> room,
                                                          absl::Span<uint64_t> mask, bool* left_out,
                                                          int64_t* work) {
  absl::MutexLock lock(&mutex_);
  Cache& cache = *position.cache;
  const Turn turn(&cache.machine(), work);
  MaskCost cost{.digest = cache.machine().Digest(position.state)};
  *left_out = false;
  if (room.has_value() && !IsNearEverywhere(*room - 1)) {
    RETURN_IF_ERROR(cache.MaskToEnd(position.state, *room - 1, mask, left_out, &cost.visited));
    return cost;
  }
  absl::Span<const uint64_t> found;
  RETURN_IF_ERROR(cache.Mask(position.state, &found, &cost.visited));
  std::copy(found.begin(), found.end(), mask.begin());
  return cost;
}

absl::StatusOr<int32_t> Constraint::TokensToEnd(const Position& position, int64_t* work) {
  absl::MutexLock lock(&mutex_);
  Cache& cache = *position.cache;
  const Turn turn(&cache.machine(), work);
  RETURN_IF_ERROR(cache.BeginSteps());
  int32_t tokens = 0;
  RETURN_IF_ERROR(cache.TokensToEnd(position.state, &tokens));
  return tokens;
}

bool Constraint::IsNearEverywhere(int32_t room) const {
  return trie_->has_all_bytes() && grammar_->automaton().greatest_distance <= room;
}

absl::StatusOr<bool> Constraint::Advance(Position* position, absl::string_view bytes,
                                         int64_t* work) {
  absl::MutexLock lock(&mutex_);
  Cache& cache = *position->cache;
  const Turn turn(&cache.machine(), work);
  RETURN_IF_ERROR(cache.BeginSteps());
  StateId state = position->state;
  for (char c : bytes) {
    state = cache.Step(state, static_cast<uint8_t>(c));
    if (state != StateMachine::kNoState) continue;
    RETURN_IF_ERROR(cache.status());
    return false;
  }
  SetPosition(&cache.machine(), state, position);
  return true;
}

absl::StatusOr<std::string> Constraint::SkipForced(Position* position, size_t limit,
                                                   int64_t* work) {
  absl::MutexLock lock(&mutex_);
  Cache& cache = *position->cache;
  const Turn turn(&cache.machine(), work);
  RETURN_IF_ERROR(cache.BeginSteps());
  std::string bytes;
  StateId state = position->state;
  while (bytes.size() < limit) {
    const int byte = cache.machine().ForcedByte(state);
    if (byte < 0) break;
    const StateId next = cache.Step(state, static_cast<uint8_t>(byte));
    RETURN_IF_ERROR(cache.status());
    state = next;
    bytes.push_back(static_cast<char>(byte));
  }
  SetPosition(&cache.machine(), state, position);
  return bytes;
}

absl::StatusOr<bool> Constraint::SomeTokenGoesOn(const Position& position, absl::string_view tail,
                                                 int64_t* work) {
  const TokenTrie::Tree& tree = trie_->all();
  // Down to the node of `tail`: the first of its subtree's nodes is the next one.
  int32_t i = 0, end = tree.num_nodes();
  for (char c : tail) {
    while (i < end && tree.nodes[i].byte != static_cast<uint8_t>(c)) i = tree.nodes[i].subtree_end;
    if (i >= end) return false;
    end = tree.nodes[i].subtree_end;
    ++i;
  }
  absl::MutexLock lock(&mutex_);
  Cache& cache = *position.cache;
  const Turn turn(&cache.machine(), work);
  RETURN_IF_ERROR(cache.BeginSteps());
  std::vector<StateId> path(tree.max_depth + 1, position.state);
  while (i < end) {
    const TokenTrie::Node& node = tree.nodes[i];
    const StateId next = cache.Step(path[node.depth - 1], node.byte);
    if (next == StateMachine::kNoState) {
      RETURN_IF_ERROR(cache.status());
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
