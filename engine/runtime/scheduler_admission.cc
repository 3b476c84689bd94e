// How sequences come to run: out of the queue, with the prefix that the cache or the store has,
// when there is room for them.
#include <algorithm>
#include <cassert>
#include <utility>

#include "engine/base/monotonic_time.h"
#include "engine/runtime/scheduler.h"
#include "engine/runtime/scheduler_step.h"

namespace lm {
namespace {

// Whether a prefix that is in the cache or the store can be used up to any of its tokens. Of a
// window or a state there is only what the prefix's end sees.
bool PrefixesEndAnywhere(const CacheShape& cache) {
  return cache.classes.size() == 1 && !cache.recurrent();
}

// How many tokens both begin with.
int64_t CommonTokens(absl::Span<const int32_t> a, absl::Span<const int32_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace

// Admits sequences from a queue until the step's budget for prompts is spent, or `most` run. False
// where there is no memory for the next one: then no sequence may overtake it, or a long prompt
// would wait for ever.
bool Scheduler::AdmitWaiting(FairQueue* waiting, size_t most, Step* step) {
  most = std::min<size_t>(most, options_.step_tokens);
  waiting->BeginScan();
  while (step->prompt_budget() > 0 && running_.size() + loading_.size() < most) {
    std::unique_ptr<Sequence> next = waiting->TakeNext([this, step](const Sequence& s) {
      if (step->prompt_budget() <= 0) return false;  // LendPriority has spent it
      const std::optional<Awaited> awaited = FindAwaited(s);
      if (awaited && s.interactive()) LendPriority(*awaited, step);
      return !awaited;
    });
    if (next == nullptr) return true;
    const Admission admission = MakeRoomFor(next.get(), step);
    if (admission == Admission::kNo) {
      waiting->PushFront(std::move(next));
      return false;
    }
    if (admission == Admission::kLoads) {
      const int64_t tokens = step->plan.loads.back().stored->tokens;
      loading_.push_back({std::move(next), tokens});
      continue;
    }
    Sequence* sequence = next.get();
    Enter(std::move(next));
    if (!Plan(sequence, sequence->remaining(), step)) return false;
  }
  return true;
}

// The sequence runs from now on, as the last one of its priority.
void Scheduler::Enter(std::unique_ptr<Sequence> sequence) {
  const auto end_of_class =
      sequence->interactive()
          ? std::find_if(running_.begin(), running_.end(),
                         [](const auto& running) { return !running->interactive(); })
          : running_.end();
  running_.insert(end_of_class, std::move(sequence));
}

// Admits a waiting sequence; for an interactive one, batch sequences are preempted.
Scheduler::Admission Scheduler::MakeRoomFor(Sequence* sequence, Step* step) {
  for (;;) {
    const Admission admission = Admit(sequence, step);
    if (admission != Admission::kNo) return admission;
    const bool room =
        sequence->interactive() && !running_.empty() && !running_.back()->interactive();
    if (!room) return Admission::kNo;
    Preempt(running_.back().get(), step);
  }
}

// Plans the tokens of a batch sequence for which an interactive one waits, before those of other
// batch sequences.
void Scheduler::LendPriority(const Awaited& awaited, Step* step) {
  Sequence* sequence = awaited.sequence;
  if (sequence == nullptr || sequence->interactive()) return;
  if (step->HasPlanned(*sequence)) return;
  step->budget += std::exchange(step->kept, 0);  // this is a batch prompt that goes on
  Plan(sequence, awaited.tokens - sequence->computed(), step);
}

// The longest prefix of the sequence's prompt that another sequence is computing or loading.
Scheduler::Awaited Scheduler::LongestAwaited(const Sequence& sequence) {
  const absl::Span<const int32_t> tokens =
      sequence.tokens().subspan(0, sequence.tokens().size() - 1);
  const bool ends_anywhere = PrefixesEndAnywhere(options_.cache);
  Awaited longest;
  auto consider = [&longest](Sequence* other, int64_t common) {
    if (common > longest.tokens) longest = {other, static_cast<int32_t>(common)};
  };
  for (const Loading& other : loading_) {
    if (!other.sequence->SharesWith(sequence)) continue;
    const int64_t common = CommonTokens(tokens, other.sequence->tokens().subspan(0, other.tokens));
    if (!ends_anywhere && common < other.tokens) continue;
    consider(nullptr, common);
  }
  for (const auto& other : running_) {
    if (other->decoding() || other->wants_every_token() || !other->SharesWith(sequence)) continue;
    absl::Span<const int32_t> theirs = other->tokens();
    if (other->waited_for_work() > 0) theirs.remove_suffix(1);  // not before its grammar is known
    int64_t common = CommonTokens(tokens, theirs);
    if (options_.cache.recurrent()) common = other->SnapshotFor(static_cast<int32_t>(common));
    if (common <= other->computed()) continue;  // it is in the tree, or its windows are gone
    consider(other.get(), common);
  }
  return longest;
}

// The prefix, if any, that the sequence had better wait for: it is under way, and saves more than
// what is in the tree already.
std::optional<Scheduler::Awaited> Scheduler::FindAwaited(const Sequence& sequence) {
  if (!options_.prefix_cache || sequence.wants_every_token()) return std::nullopt;
  const Awaited longest = LongestAwaited(sequence);
  if (longest.tokens < kLeastHeldPrefix) return std::nullopt;
  const absl::Span<const int32_t> tokens =
      sequence.tokens().subspan(0, sequence.tokens().size() - 1);
  const int64_t known = blocks_.MatchLength(sequence.prefix_owner(), tokens);
  if (longest.tokens - known < kLeastHeldPrefix) return std::nullopt;
  return longest;
}

// Whether there is memory for a waiting sequence of which `matched` tokens are cached: for its
// other tokens and one more, for what running and loading prompts still need, and a block for each
// of these to grow. A sequence that is alone always has room.
bool Scheduler::HasRoomFor(const Sequence& sequence, int64_t matched) const {
  if (running_.empty() && loading_.empty()) return true;
  if (options_.cache.recurrent() && !blocks_.HasStateFor(sequence.block_table())) return false;
  auto blocks_of = [](const Sequence& s) {
    return BlocksFor(static_cast<int64_t>(s.tokens().size()) + 1);
  };
  int64_t needed = blocks_of(sequence) - matched / kKvBlockTokens;
  auto count = [&](const Sequence& other) {
    const auto has = static_cast<int64_t>(other.block_table().blocks[0].size());
    needed += std::max<int64_t>(blocks_of(other) - has, 0) + 1;
  };
  for (const auto& other : running_) count(*other);
  for (const Loading& other : loading_) count(*other.sequence);
  return AvailableBlocks() >= needed && HasRoomInWindows(sequence);
}

// Gives a waiting sequence its cached prefix, or has its stored one loaded, if there is room for
// the sequence.
Scheduler::Admission Scheduler::Admit(Sequence* sequence, Step* step) {
  const auto num_tokens = static_cast<int64_t>(sequence->tokens().size());
  BlockTable& table = sequence->block_table();
  const int64_t limit = sequence->wants_every_token() ? 0 : num_tokens - 1;
  int64_t matched = blocks_.Match(sequence->prefix_owner(), sequence->tokens(), limit, &table);
  if (!HasRoomFor(*sequence, matched)) {
    blocks_.Release(&table);
    return Admission::kNo;
  }
  const int64_t known = table.lease.known();
  if (BeginLoad(sequence, matched, step)) {
    PlanPoints(sequence, step->plan.loads.back().stored->tokens, known);
    return Admission::kLoads;
  }
  table.lease.CountHit();
  HeldState snapshot;
  if (options_.store != nullptr) snapshot = blocks_.HoldSnapshot(table);
  std::optional<int64_t> cached = blocks_.Adopt(sequence->salt(), &table);
  if (!cached && running_.empty() && loading_.empty()) {
    // Other slots hold what is being written to the store: nobody is there to give one back, and
    // the snapshot's own may go.
    snapshot = {};
    blocks_.Release(&table);
    matched = blocks_.Match(sequence->prefix_owner(), sequence->tokens(), /*limit=*/0, &table);
    cached = blocks_.Adopt(sequence->salt(), &table);
  }
  if (!cached) {
    blocks_.Release(&table);
    return Admission::kNo;
  }
  PlanFound(sequence, matched, *cached, std::move(snapshot), step);
  PlanPoints(sequence, *cached, known);
  sequence->set_computed(static_cast<int32_t>(*cached));
  sequence->OnAdmitted(static_cast<int32_t>(*cached), MonotonicTime::Now());
  step->plan.tokens_reused += *cached;
  return Admission::kRuns;
}

// Where more of the prompt is stored than the `matched` tokens that are cached, gives the sequence
// blocks for the stored prefix, and has it read. False where no more is stored, or there is no room
// for it; then the sequence's table is as it was.
bool Scheduler::BeginLoad(Sequence* sequence, int64_t matched, Step* step) {
  if (!MayStore(*sequence) || !sequence->trusts_store()) return false;
  std::shared_ptr<const StoredPrefix> stored =
      options_.store->Find(sequence->store_key(), sequence->tokens());
  if (stored == nullptr || stored->tokens - matched < kLeastHeldPrefix) return false;
  // The cached tokens are used as far as they fill whole blocks; with windows or states, not at
  // all.
  BlockTable& table = sequence->block_table();
  auto match = [&](int64_t limit) {
    blocks_.Release(&table);
    return blocks_.Match(sequence->prefix_owner(), sequence->tokens(), limit, &table);
  };
  const bool ends_anywhere = PrefixesEndAnywhere(options_.cache);
  const int64_t kept = match(ends_anywhere ? matched / kKvBlockTokens * kKvBlockTokens : 0);
  if (!blocks_.Adopt(sequence->salt(), &table) ||
      !blocks_.MakeRoomForPrefix(sequence->salt(), stored->tokens, &table)) {
    match(matched);
    return false;
  }
  step->plan.loads.push_back({sequence, std::move(stored), kept / kKvBlockTokens});
  return true;
}

bool Scheduler::MayStore(const Sequence& sequence) const {
  return options_.store != nullptr && !sequence.store_key().owner.empty() &&
         !sequence.wants_every_token();
}

// Plans to write prefixes that the sequence has found in the cache, of which `matched` tokens match
// its prompt and `cached` are used: a prefix that is found is of use more than once.
void Scheduler::PlanFound(Sequence* sequence, int64_t matched, int64_t cached, HeldState state,
                          Step* step) {
  if (!MayStore(*sequence)) return;
  if (cached == matched && matched > 0) {
    step->plan.found.push_back({sequence, matched, std::move(state)});
  }
  for (const int32_t position : sequence->request().spec().store) {
    if (position > cached || position >= matched) continue;
    step->plan.found.push_back({sequence, position});  // full attention: all blocks are there
  }
}

// Sets positions, behind the first `cached` tokens, at which the sequence's steps end: at the end
// of a prefix that is to be stored, of one that earlier prompts began with too, and, in a recurrent
// model, of the `known` tokens in the tree, where later prompts will part from this one.
void Scheduler::PlanPoints(Sequence* sequence, int64_t cached, int64_t known) {
  if (MayStore(*sequence)) {
    for (const int32_t position : sequence->request().spec().store) {
      if (position > cached) sequence->AddStorePoint(position);
    }
    const auto sighted = static_cast<int32_t>(sequence->sighted());
    if (sighted > cached &&
        options_.store->Wants(sequence->store_key(), sequence->tokens().subspan(0, sighted))) {
      sequence->AddStorePoint(sighted);
    }
  }
  if (options_.cache.recurrent() && options_.prefix_cache && !sequence->wants_every_token() &&
      known - cached >= kLeastHeldPrefix) {
    sequence->AddSnapshot(static_cast<int32_t>(known));
  }
}

void Scheduler::EndLoads() {
  while (!loading_.empty()) {
    OnLoaded(loading_.back().sequence.get(), /*loaded=*/false, MonotonicTime::Now());
  }
}

void Scheduler::OnLoaded(const Sequence* sequence, bool loaded, MonotonicTime now) {
  const auto found = std::find_if(loading_.begin(), loading_.end(), [sequence](const Loading& l) {
    return l.sequence.get() == sequence;
  });
  assert(found != loading_.end());
  Loading done = std::move(*found);
  loading_.erase(found);
  BlockTable& table = done.sequence->block_table();
  if (!loaded) {
    blocks_.Release(&table);
    done.sequence->DistrustStore();
    QueueOf(*done.sequence).PushFront(std::move(done.sequence));
    return;
  }
  table.lease.CountHit();
  done.sequence->set_computed(static_cast<int32_t>(done.tokens));
  done.sequence->OnAdmitted(static_cast<int32_t>(done.tokens), now);
  tokens_reused_ += done.tokens;
  blocks_.Publish(done.sequence->prefix_owner(), done.sequence->tokens().subspan(0, done.tokens),
                  /*partial=*/true,
                  options_.cache.recurrent() ? Snapshot::kNeeded : Snapshot::kNone, &table);
  Enter(std::move(done.sequence));
}

// The most blocks of a windowed class that the sequence may have at a time.
int64_t Scheduler::WindowBlocks(const CacheClass& c, const Sequence& sequence) const {
  return std::min<int64_t>(BlocksFor(c.window + most_tokens_) + 1,
                           BlocksFor(static_cast<int64_t>(sequence.tokens().size()) + 1) + 1);
}

bool Scheduler::HasRoomInWindows(const Sequence& sequence) const {
  for (const CacheClass& c : options_.cache.classes) {
    if (c.window == 0) continue;
    int64_t needed = WindowBlocks(c, sequence);
    for (const auto& other : running_) needed += WindowBlocks(c, *other);
    for (const Loading& other : loading_) needed += WindowBlocks(c, *other.sequence);
    if (needed > c.num_blocks) return false;
  }
  return true;
}

// Blocks that Grow could get without preempting a sequence.
int64_t Scheduler::AvailableBlocks() const {
  int64_t available = blocks_.num_free() + blocks_.num_evictable();
  for (const auto& sequence : running_) available -= blocks_.SharesTail(sequence->block_table());
  return available;
}

}  // namespace lm
