#include "engine/runtime/scheduler.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <unordered_map>
#include <utility>

#include "engine/backend/backend.h"

namespace lm {

struct Scheduler::Step {
  StepPlan plan;
  int32_t budget = 0;                                          // tokens
  int32_t prompt_limit = std::numeric_limits<int32_t>::max();  // of them for prompts
  int32_t scored_rows = 0;
  int32_t prompt_tokens = 0;
  int32_t decode_tokens = 0;
  int32_t batch_rows = 0;      // that decode
  int64_t planned_before = 0;  // planned_
  bool interactive = false;    // there are interactive sequences, planned or not

  int32_t prompt_budget() const { return std::min(budget, prompt_limit); }

  // Counts what an entry takes; with `sign` -1, takes that back.
  void Count(const StepEntry& entry, int32_t sign) {
    budget -= sign * entry.num_tokens;
    if (!entry.decode) prompt_limit -= sign * entry.num_tokens;
    (entry.decode ? decode_tokens : prompt_tokens) += sign * entry.num_tokens;
    if (entry.decode && !entry.sequence->interactive()) batch_rows += sign;
    if (entry.sequence->scoring()) scored_rows += sign * entry.num_tokens;
  }
};

namespace {

// Tokens that a recurrent sequence may have to compute (again) in a step in which it guesses: so
// that it does not go back to the same state for ever.
constexpr int32_t kMostAgain = 8;

// Beside its window a sequence has the tokens of a step, and blocks are begun at both ends.
int32_t MostTokens(const SchedulerOptions& options) {
  int64_t most = options.step_tokens;
  for (const CacheClass& c : options.cache.classes) {
    if (c.window == 0) continue;
    most = std::min(most, (int64_t{c.num_blocks} - 2) * kKvBlockTokens - c.window);
  }
  return static_cast<int32_t>(std::max<int64_t>(most, 1));
}

// Whether each part of a prefix that is there is one. Of windows and states there is only what its
// end sees.
bool PrefixesEndAnywhere(const CacheShape& cache) {
  return cache.classes.size() == 1 && !cache.recurrent();
}

// Rows with the same adapters side by side: their products are one.
void PutAdaptersTogether(StepPlan* plan) {
  std::stable_sort(
      plan->entries.begin(), plan->entries.end(), [](const StepEntry& a, const StepEntry& b) {
        return a.sequence->request().spec().adapters < b.sequence->request().spec().adapters;
      });
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options),
      most_tokens_(MostTokens(options)),
      blocks_(options.cache, options.prefix_cache) {}

void Scheduler::Add(std::unique_ptr<Sequence> sequence) {
  assert(sequence->remaining() > 0);
  FairQueue& queue = QueueOf(*sequence);
  queue.PushBack(std::move(sequence));
}

void Scheduler::MoveRaised() {
  auto raised = batch_waiting_.TakeIf(
      [](const Sequence& s) { return s.request().priority() != s.priority(); });
  for (std::unique_ptr<Sequence>& sequence : raised) {
    sequence->UpdatePriority();
    interactive_waiting_.PushBack(std::move(sequence));
  }
  for (Loading& loading : loading_) loading.sequence->UpdatePriority();
  for (const auto& sequence : running_) sequence->UpdatePriority();
  std::stable_partition(running_.begin(), running_.end(),
                        [](const auto& sequence) { return sequence->interactive(); });
}

std::vector<Scheduler::FollowedToEnd> Scheduler::FollowGrammars() {
  grammar_work_ = options_.grammar_work;
  std::vector<Sequence*> interactive, batch;
  for (const auto& sequence : running_) {
    if (sequence->waited_for_work() == 0) continue;
    (sequence->interactive() ? interactive : batch).push_back(sequence.get());
  }
  for (std::vector<Sequence*>* waiting : {&interactive, &batch}) {
    std::stable_sort(waiting->begin(), waiting->end(), [](const Sequence* a, const Sequence* b) {
      return a->waited_for_work() < b->waited_for_work();
    });
  }
  // A part is left for those that do not wait yet.
  const int64_t all_turns = options_.grammar_work / 2;
  const int64_t turn = std::max<int64_t>(all_turns / 4, 1);
  std::vector<FollowedToEnd> ended;
  auto spent = [this] { return options_.grammar_work - grammar_work_; };
  auto give_turn = [&](Sequence* sequence) {
    int64_t work = turn;
    FollowedToEnd followed{.sequence = sequence, .end = sequence->Follow(&work)};
    grammar_work_ -= turn - work;
    if (!followed.end.ok() || followed.end->has_value()) ended.push_back(std::move(followed));
  };
  // Interactive ones have as many as they need, as far as that part reaches; of the others there is
  // always one that goes on.
  for (int64_t before = -1; before < spent() && spent() < all_turns;) {
    before = spent();
    for (Sequence* sequence : interactive) {
      if (sequence->waited_for_work() > 0 && spent() < all_turns) give_turn(sequence);
    }
  }
  const int64_t until = std::max(all_turns, spent() + 1);
  for (Sequence* sequence : batch) {
    if (spent() >= until) break;
    give_turn(sequence);
  }
  return ended;
}

int64_t Scheduler::num_following() const {
  return std::count_if(running_.begin(), running_.end(),
                       [](const auto& sequence) { return sequence->waited_for_work() > 0; });
}

// Whether the sequence may have its last token computed; it gets its first turn here.
bool Scheduler::IsReady(Sequence* sequence) {
  if (sequence->ready()) return true;
  if (sequence->waited_for_work() > 0) return false;
  const int64_t turn = std::max<int64_t>(std::min(grammar_work_, options_.grammar_work / 4), 0);
  int64_t work = turn;
  sequence->Follow(&work).IgnoreError();  // no token is pending: it ends nothing
  grammar_work_ -= turn - work;
  return sequence->ready();
}

StepPlan Scheduler::Schedule(const StepLimits& limits) {
  Step step;
  step.budget = options_.step_tokens;
  step.planned_before = planned_;
  step.interactive = HasInteractive();
  step.plan.tokens_reused = std::exchange(tokens_reused_, 0);
  step.plan.preemptions = std::exchange(preemptions_, 0);
  PlanDecodes(limits, &step);
  const size_t most = options_.max_sequences;
  PlanPrompts(Priority::kInteractive, &step);
  const bool room = AdmitWaiting(&interactive_waiting_, most + kInteractiveSeats, &step);
  if (step.interactive) {
    step.prompt_limit = std::min(step.prompt_limit, limits.beside_interactive - step.prompt_tokens);
  }
  PlanPrompts(Priority::kBatch, &step);
  if (room) AdmitWaiting(&batch_waiting_, most, &step);
  // What a plan without tokens has to say is said by the next.
  if (step.plan.entries.empty()) {
    tokens_reused_ = std::exchange(step.plan.tokens_reused, 0);
    preemptions_ = std::exchange(step.plan.preemptions, 0);
    if (step.plan.loads.empty()) return {};
  }
  PutAdaptersTogether(&step.plan);
  step.plan.cache_ops = blocks_.TakeOps();
  if (options_.speculator != nullptr) PlanGuesses(limits, &step);
  return std::move(step.plan);
}

// Who of the planned may guess, and how much.
Scheduler::Guessing Scheduler::FindGuessing(const StepLimits& step_limits, Step* step) const {
  Guessing guessing;
  Speculator::Limits& limits = guessing.limits;
  limits = {.tokens = std::min(step->budget, options_.max_logit_rows - step->scored_rows),
            .step_tokens = step->decode_tokens + step->prompt_tokens,
            .prompts = step->prompt_tokens > 0,
            .prompt_seconds = step_limits.token_seconds,
            .rewinds = options_.cache.recurrent()};
  std::vector<StepEntry*> by_priority;
  for (StepEntry& entry : step->plan.entries) by_priority.push_back(&entry);
  std::stable_partition(by_priority.begin(), by_priority.end(),
                        [](const StepEntry* e) { return e->sequence->interactive(); });
  // Beside interactive rows those of batch share what the step has left of its time.
  const int32_t most_tokens =
      step->interactive ? step_limits.interactive_decode : std::numeric_limits<int32_t>::max();
  const int32_t room = std::max(most_tokens - limits.step_tokens, 0);
  const int32_t most_of_batch = room / std::max(step->batch_rows, 1);
  for (StepEntry* planned : by_priority) {
    StepEntry& entry = *planned;
    Sequence* sequence = entry.sequence;
    sequence->DropGuess();
    // A snapshot is of a state that has seen no guess.
    const bool guesses =
        entry.samples && sequence->AllowedTokens().ok() &&
        (sequence->interactive() || most_of_batch > 0) &&
        sequence->request().spec().options.speculate != Speculate::kOff &&
        (!options_.cache.recurrent() || (entry.decode && entry.num_tokens <= kMostAgain));
    if (!guesses) continue;
    int32_t most = most_tokens_ - entry.num_tokens;
    if (!sequence->interactive()) most = std::min(most, most_of_batch);
    entry.speculator_row = static_cast<int32_t>(guessing.rows.size());
    guessing.rows.push_back({.sequence = sequence, .most = most});
    guessing.entries.push_back(&entry);
  }
  return guessing;
}

// Has the planned sequences guess, with what the step has left.
void Scheduler::PlanGuesses(const StepLimits& limits, Step* step) {
  const Guessing guessing = FindGuessing(limits, step);
  if (guessing.rows.empty()) return;
  std::vector<CacheOp>& cache_ops = step->plan.cache_ops;
  options_.speculator->Guess(guessing.rows, guessing.limits, &cache_ops, &grammar_work_);
  for (StepEntry* entry : guessing.entries) {
    Sequence* sequence = entry->sequence;
    const int32_t guessed = sequence->num_guessed();
    if (guessed == 0) continue;
    const int32_t tokens = entry->num_tokens + guessed;
    BlockTable& table = sequence->block_table();
    if (!blocks_.Grow(sequence->salt(), sequence->computed() + tokens, &table) ||
        (options_.cache.recurrent() && !blocks_.SetAside(&table))) {
      sequence->DropGuess();
      continue;
    }
    entry->num_tokens = tokens;
    entry->num_guessed = guessed;
  }
  const std::vector<CacheOp> more = blocks_.TakeOps();
  cache_ops.insert(cache_ops.end(), more.begin(), more.end());
}

bool Scheduler::MayFollow(const StepLimits& limits, StepPlan* plan) const {
  // A sequence that waits gets the place of one that ends a step later so, and where all end at
  // once a step was in vain: of long answers that is little.
  constexpr int64_t kLongAnswer = 8;    // tokens there are, of half an answer on the mean
  constexpr int64_t kFewRows = 4;       // that may well end at once
  constexpr double kMostMissed = 0.05;  // rows that take a step more, in what saves all some of it
  const bool others = interactive_waiting_.size() > 0 || !loading_.empty() || num_following() > 0 ||
                      HasBatchBesideInteractive();
  if (others || !plan->loads.empty() || running_.empty()) return false;
  if (missed_share_ > kMostMissed) return false;
  int64_t answered = 0;
  for (const auto& sequence : running_) {
    if (!sequence->decoding() || sequence->scoring() || sequence->embedding() ||
        sequence->will_read_logits() ||
        sequence->request().spec().options.speculate == Speculate::kAlways) {
      return false;
    }
    if (sequence->ends_with_next() && batch_waiting_.size() > 0) return false;
    answered += sequence->answer_tokens();
  }
  const auto rows = static_cast<int64_t>(running_.size());
  const bool few = rows < kFewRows || batch_waiting_.size() > 0;
  if (few && answered < rows * kLongAnswer) return false;
  for (const StepEntry& entry : plan->entries) {
    if (!entry.decode || entry.num_guessed > 0) return false;
  }
  if (options_.speculator == nullptr) return true;
  if (options_.speculator->asks_model()) return false;
  if (plan->follows) {  // else it has been asked what it would guess
    Step step;
    step.budget = options_.step_tokens;
    step.interactive = HasInteractive();
    step.plan = std::move(*plan);
    for (const StepEntry& entry : step.plan.entries) step.Count(entry, 1);
    const Guessing guessing = FindGuessing(limits, &step);
    *plan = std::move(step.plan);
    if (options_.speculator->WouldGuess(guessing.rows, guessing.limits)) return false;
  }
  return true;
}

void Scheduler::RecordMissed(int64_t rows, int64_t missed) {
  constexpr double kOfLate = 0.1;
  if (rows == 0) return;
  const double share = static_cast<double>(missed) / static_cast<double>(rows);
  missed_share_ += kOfLate * (share - missed_share_);
}

StepPlan Scheduler::Follow(const StepPlan& plan) {
  std::unordered_map<const Sequence*, std::pair<const StepEntry*, int32_t>> planned;
  int32_t num_sampled = 0;
  for (const StepEntry& entry : plan.entries) {
    planned[entry.sequence] = {&entry, entry.samples ? num_sampled++ : -1};
  }
  StepPlan next;
  next.follows = true;
  int32_t budget = options_.step_tokens;
  for (const auto& owned : running_) {
    Sequence* sequence = owned.get();
    StepEntry entry{
        .sequence = sequence, .first = sequence->computed(), .decode = true, .samples = true};
    if (const auto before = planned.find(sequence); before != planned.end()) {
      entry.first += before->second.first->num_tokens;
      entry.sampled = before->second.second;
    }
    if (entry.sampled >= 0 && sequence->ends_with_next()) continue;
    const auto known = static_cast<int32_t>(sequence->tokens().size());
    entry.num_tokens = known - entry.first + (entry.sampled >= 0 ? 1 : 0);
    if (entry.num_tokens <= 0 || entry.num_tokens > std::min(budget, most_tokens_)) return {};
    if (entry.sampled < 0 && !IsReady(sequence)) return {};
    if (!blocks_.Grow(sequence->salt(), entry.first + entry.num_tokens, &sequence->block_table())) {
      return {};
    }
    budget -= entry.num_tokens;
    next.entries.push_back(entry);
  }
  if (next.entries.empty()) return {};
  for (const StepEntry& entry : next.entries) entry.sequence->set_last_planned(++planned_);
  PutAdaptersTogether(&next);
  next.cache_ops = blocks_.TakeOps();
  return next;
}

void Scheduler::Confirm(absl::Span<const absl::StatusOr<int32_t>> sampled,
                        const std::vector<bool>& late, StepPlan* plan) {
  std::erase_if(plan->entries, [&](StepEntry& entry) {
    Sequence* sequence = entry.sequence;
    const auto end = static_cast<size_t>(entry.first) + entry.num_tokens;
    assert(sequence->computed() == entry.first);
    if (sequence->tokens().size() < end) return true;  // the sampled one waits for its grammar
    if (const int32_t i = entry.sampled; i >= 0) {
      if (late[i] || !sampled[i].ok() || *sampled[i] != sequence->tokens()[end - 1]) return true;
    }
    entry.samples = sequence->remaining() == entry.num_tokens;
    return entry.samples && !IsReady(sequence);
  });
}

bool Scheduler::HasInteractive() const {
  return interactive_waiting_.size() > 0 || (!running_.empty() && running_.front()->interactive());
}

bool Scheduler::HasBatchBesideInteractive() const {
  return HasInteractive() && !running_.empty() && !running_.back()->interactive();
}

// Planning may preempt (the planned one included): what was preempted does not decode.
void Scheduler::PlanDecodes(const StepLimits& limits, Step* step) {
  std::vector<Sequence*> decoding;
  for (const auto& sequence : running_) {
    if (sequence->decoding()) decoding.push_back(sequence.get());
  }
  const bool limited =
      step->interactive && limits.interactive_decode < std::numeric_limits<int32_t>::max();
  if (limited) {  // those of batch that have sat out the longest first
    const auto batch = std::find_if(decoding.begin(), decoding.end(),
                                    [](const Sequence* s) { return !s->interactive(); });
    std::stable_sort(batch, decoding.end(), [](const Sequence* a, const Sequence* b) {
      return a->last_planned() < b->last_planned();
    });
  }
  auto sits_out = [&](const Sequence& sequence) {
    return limited && !sequence.interactive() && step->batch_rows >= kLeastBatchRows &&
           step->decode_tokens + sequence.remaining() > limits.interactive_decode;
  };
  for (Sequence* sequence : decoding) {
    if (step->budget <= 0) break;
    if (!sequence->decoding() || sits_out(*sequence) || !IsReady(sequence)) continue;
    step->prompt_limit =
        std::min(step->prompt_limit,
                 sequence->interactive() ? limits.beside_interactive : limits.beside_batch);
    Plan(sequence, sequence->remaining(), step);
  }
}

void Scheduler::PlanPrompts(Priority priority, Step* step) {
  for (size_t i = 0; i < running_.size() && step->prompt_budget() > 0; ++i) {
    Sequence* sequence = running_[i].get();
    if (sequence->decoding() || sequence->priority() != priority) continue;
    if (sequence->last_planned() > step->planned_before) continue;  // with another's priority
    Plan(sequence, sequence->remaining(), step);
  }
}

// False where memory is short: then nobody may overtake, else a long prompt would wait for ever.
bool Scheduler::AdmitWaiting(FairQueue* waiting, size_t most, Step* step) {
  most = std::min<size_t>(most, options_.step_tokens);
  waiting->BeginScan();
  while (step->prompt_budget() > 0 && running_.size() + loading_.size() < most) {
    std::unique_ptr<Sequence> next = waiting->TakeNext([this, step](const Sequence& s) {
      if (step->prompt_budget() <= 0) return false;  // it was lent
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

void Scheduler::Enter(std::unique_ptr<Sequence> sequence) {
  const auto end_of_class =
      sequence->interactive()
          ? std::find_if(running_.begin(), running_.end(),
                         [](const auto& running) { return !running->interactive(); })
          : running_.end();
  running_.insert(end_of_class, std::move(sequence));
}

// Admits a waiting sequence; batch ones make room for an interactive one.
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

// Plans up to `num_tokens` tokens of a running sequence. False where it had to be preempted itself.
bool Scheduler::Plan(Sequence* sequence, int32_t num_tokens, Step* step) {
  if (options_.cache.whole_sequences) {  // all of it, where there is room for any
    if (step->prompt_budget() <= 0) return true;
    return PlanTokens(sequence, num_tokens, step);
  }
  num_tokens = std::min(num_tokens, sequence->decoding() ? step->budget : step->prompt_budget());
  if (num_tokens >= sequence->remaining() && !IsReady(sequence)) {
    num_tokens = sequence->remaining() - 1;
  }
  num_tokens = std::min(num_tokens, most_tokens_);
  if (const std::optional<int32_t> snapshot = sequence->next_snapshot()) {
    num_tokens = std::min(num_tokens, *snapshot - sequence->computed());
  }
  if (num_tokens <= 0) return true;
  if (sequence->scoring()) {
    num_tokens = std::min(num_tokens, options_.max_logit_rows - step->scored_rows);
    if (num_tokens == 0) return true;
  }
  return PlanTokens(sequence, num_tokens, step);
}

bool Scheduler::PlanTokens(Sequence* sequence, int32_t num_tokens, Step* step) {
  while (!blocks_.Grow(sequence->salt(), sequence->computed() + num_tokens,
                       &sequence->block_table())) {
    Sequence* last = running_.back().get();
    Preempt(last, step);
    if (last == sequence) return false;
  }
  StepEntry entry{.sequence = sequence,
                  .first = sequence->computed(),
                  .num_tokens = num_tokens,
                  .decode = sequence->decoding()};
  const bool last = num_tokens == sequence->remaining();
  if (sequence->embedding()) {
    entry.pooled = sequence->PooledAmong(sequence->computed(), num_tokens);
  } else if (sequence->scoring()) {
    entry.num_logits = num_tokens;
  } else {
    entry.samples = last;
  }
  sequence->set_last_planned(++planned_);
  step->Count(entry, 1);
  step->plan.entries.push_back(entry);
  return true;
}

// What a sequence of batch computes for an interactive one comes before what else is of batch.
void Scheduler::LendPriority(const Awaited& awaited, Step* step) {
  Sequence* sequence = awaited.sequence;
  if (sequence == nullptr || sequence->interactive()) return;
  if (sequence->last_planned() > step->planned_before) return;
  Plan(sequence, awaited.tokens - sequence->computed(), step);
}

// The prefix, if any, that is under way and that this one had better wait for.
std::optional<Scheduler::Awaited> Scheduler::FindAwaited(const Sequence& sequence) {
  if (!options_.prefix_cache || sequence.wants_every_token()) return std::nullopt;
  const absl::Span<const int32_t> tokens =
      sequence.tokens().subspan(0, sequence.tokens().size() - 1);
  const bool ends_anywhere = PrefixesEndAnywhere(options_.cache);
  Awaited longest;
  auto consider = [&longest](Sequence* other, int64_t common) {
    if (common > longest.tokens) longest = {other, static_cast<int32_t>(common)};
  };
  for (const Loading& other : loading_) {
    if (!other.sequence->SharesWith(sequence)) continue;
    const absl::Span<const int32_t> theirs = other.sequence->tokens().subspan(0, other.tokens);
    const int64_t common =
        std::mismatch(tokens.begin(), tokens.end(), theirs.begin(), theirs.end()).first -
        tokens.begin();
    if (!ends_anywhere && common < other.tokens) continue;
    consider(nullptr, common);
  }
  for (const auto& other : running_) {
    if (other->decoding() || other->wants_every_token() || !other->SharesWith(sequence)) {
      continue;
    }
    absl::Span<const int32_t> theirs = other->tokens();
    if (other->waited_for_work() > 0) theirs.remove_suffix(1);  // not before its grammar is known
    const auto parting = std::mismatch(tokens.begin(), tokens.end(), theirs.begin(), theirs.end());
    int64_t common = parting.first - tokens.begin();
    if (options_.cache.recurrent()) common = other->SnapshotFor(static_cast<int32_t>(common));
    if (common <= other->computed()) continue;  // it is in the tree, or its windows are gone
    consider(other.get(), common);
  }
  if (longest.tokens < kLeastHeldPrefix) return std::nullopt;
  const int64_t known = blocks_.MatchLength(sequence.prefix_owner(), tokens);
  if (longest.tokens - known < kLeastHeldPrefix) return std::nullopt;
  return longest;
}

// Gives a waiting sequence its cached prefix, provided that there is memory for all of it: its
// tokens and one more, what running prompts still need, and a block each for them to grow.
Scheduler::Admission Scheduler::Admit(Sequence* sequence, Step* step) {
  const int64_t num_tokens = static_cast<int64_t>(sequence->tokens().size());
  BlockTable& table = sequence->block_table();
  const int64_t limit = sequence->wants_every_token() ? 0 : num_tokens - 1;
  const int64_t matched =
      blocks_.Match(sequence->prefix_owner(), sequence->tokens(), limit, &table);
  int64_t needed = BlocksFor(num_tokens + 1) - matched / kKvBlockTokens;
  auto count = [&needed](const Sequence& other) {
    const int64_t wanted = BlocksFor(static_cast<int64_t>(other.tokens().size()) + 1) -
                           static_cast<int64_t>(other.block_table().blocks[0].size());
    needed += std::max<int64_t>(wanted, 0) + 1;
  };
  for (const auto& other : running_) count(*other);
  for (const Loading& other : loading_) count(*other.sequence);
  const bool no_state = options_.cache.recurrent() && blocks_.num_free_states() == 0;
  const bool alone = running_.empty() && loading_.empty();
  if (!alone && (AvailableBlocks() < needed || no_state || !HasRoomInWindows(*sequence))) {
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
  const std::optional<int64_t> cached = blocks_.Adopt(sequence->salt(), &table);
  if (!cached) {
    blocks_.Release(&table);
    return Admission::kNo;
  }
  PlanFound(sequence, matched, *cached, std::move(snapshot), step);
  PlanPoints(sequence, *cached, known);
  sequence->set_computed(static_cast<int32_t>(*cached));
  sequence->OnAdmitted(static_cast<int32_t>(*cached), absl::Now());
  step->plan.tokens_reused += *cached;
  return Admission::kRuns;
}

// Where more of the prompt is stored than was matched, gives the sequence blocks for it, and has it
// read. False where that is not so, or there is no room; then its table is as it was.
bool Scheduler::BeginLoad(Sequence* sequence, int64_t matched, Step* step) {
  if (!MayStore(*sequence) || !sequence->trusts_store()) return false;
  std::shared_ptr<const StoredPrefix> stored =
      options_.store->Find(sequence->store_key(), sequence->tokens());
  if (stored == nullptr || stored->tokens - matched < kLeastHeldPrefix) return false;
  // Behind whole blocks of the match; of windows and states there is only what the store has.
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

// What the sequence found is of use more than once.
void Scheduler::PlanFound(Sequence* sequence, int64_t matched, int64_t cached, HeldState state,
                          Step* step) {
  if (!MayStore(*sequence)) return;
  if (cached == matched && matched > 0) {
    step->plan.found.push_back({sequence, matched, std::move(state)});
  }
  for (const int32_t position : sequence->request().spec().store) {
    if (position > cached || position >= matched) continue;
    step->plan.found.push_back({sequence, position});  // of full attention it has all blocks
  }
}

// Where its steps end behind its first `cached` tokens: what is to be stored does, what it was seen
// to begin with as others do, and what is known, from which others will part that come behind it.
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
    OnLoaded(loading_.back().sequence.get(), /*loaded=*/false, absl::Now());
  }
}

void Scheduler::OnLoaded(const Sequence* sequence, bool loaded, absl::Time now) {
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
                  /*partial=*/true, /*snapshot=*/options_.cache.recurrent(), &table);
  Enter(std::move(done.sequence));
}

// Blocks of a windowed class that the sequence may come to have at once.
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

// Blocks that Grow could get without preempting anybody.
int64_t Scheduler::AvailableBlocks() const {
  int64_t available = blocks_.num_free() + blocks_.num_evictable();
  for (const auto& sequence : running_) available -= blocks_.SharesTail(sequence->block_table());
  return available;
}

void Scheduler::Preempt(Sequence* sequence, Step* step) {
  assert(running_.back().get() == sequence);
  std::erase_if(step->plan.entries, [sequence, step](const StepEntry& entry) {
    if (entry.sequence != sequence) return false;
    step->Count(entry, -1);  // others may have it
    return true;
  });
  std::erase_if(step->plan.found,
                [sequence](const StepPlan::Found& found) { return found.sequence == sequence; });
  blocks_.Release(&sequence->block_table());
  sequence->OnPreempted();
  QueueOf(*sequence).PushFront(std::move(running_.back()));
  running_.pop_back();
  ++step->plan.preemptions;
}

void Scheduler::Commit(const StepEntry& entry, int32_t tokens) {
  Sequence* sequence = entry.sequence;
  const int32_t before = sequence->computed();
  sequence->set_computed(before + tokens);
  if (sequence->block_table().aside >= 0) return;  // Reject knows what stays
  Publish(sequence, before, /*prompt_ends=*/!entry.decode && sequence->remaining() == 0);
}

// What was computed from `before` on is others', and what no token sees any more nobody's.
void Scheduler::Publish(Sequence* sequence, int32_t before, bool prompt_ends) {
  BlockTable& table = sequence->block_table();
  // At the end of a prompt the begun block too, for prompts that part in it. While decoding, only
  // what has become full: rarely.
  const bool snapshot = sequence->TakeSnapshotPoint();
  if (!sequence->wants_every_token() &&
      (prompt_ends || snapshot ||
       before / kKvBlockTokens != sequence->computed() / kKvBlockTokens)) {
    blocks_.Publish(sequence->prefix_owner(), sequence->tokens().subspan(0, sequence->computed()),
                    prompt_ends || snapshot, snapshot, &table);
  }
  blocks_.LeaveBehind(sequence->computed(), &table);
}

void Scheduler::Reject(const StepEntry& entry) {
  Sequence* sequence = entry.sequence;
  if (entry.num_guessed == 0) return;
  sequence->DropGuess();
  BlockTable& table = sequence->block_table();
  if (table.aside >= 0) {
    const int32_t end = entry.first + entry.num_tokens;
    if (sequence->computed() == end) {
      blocks_.KeepState(&table);
      Publish(sequence, entry.first, /*prompt_ends=*/false);
    } else {
      blocks_.Rewind(&table);
      sequence->set_computed(entry.first);
    }
  }
  blocks_.Truncate(sequence->computed(), &table);
}

std::unique_ptr<Sequence> Scheduler::Finish(Sequence* sequence, bool keep) {
  const auto position =
      std::find_if(running_.begin(), running_.end(),
                   [sequence](const auto& running) { return running.get() == sequence; });
  assert(position != running_.end());
  std::unique_ptr<Sequence> finished = std::move(*position);
  running_.erase(position);
  if (keep && !sequence->wants_every_token()) {
    blocks_.Publish(sequence->prefix_owner(), sequence->tokens().subspan(0, sequence->computed()),
                    /*partial=*/true, /*snapshot=*/false, &sequence->block_table());
  }
  blocks_.Release(&sequence->block_table());
  return finished;
}

std::vector<std::unique_ptr<Sequence>> Scheduler::TakeRunning() {
  std::vector<std::unique_ptr<Sequence>> taken;
  while (!running_.empty()) taken.push_back(Finish(running_.back().get(), /*keep=*/false));
  return taken;
}

std::vector<std::unique_ptr<Sequence>> Scheduler::TakeIf(
    absl::FunctionRef<bool(const Sequence&)> condition) {
  std::vector<std::unique_ptr<Sequence>> taken = interactive_waiting_.TakeIf(condition);
  for (auto& sequence : batch_waiting_.TakeIf(condition)) taken.push_back(std::move(sequence));
  std::vector<Sequence*> doomed;
  for (const auto& sequence : running_) {
    if (condition(*sequence)) doomed.push_back(sequence.get());
  }
  for (Sequence* sequence : doomed) taken.push_back(Finish(sequence, /*keep=*/false));
  return taken;
}

absl::Status Scheduler::CheckIntegrity() const {
  std::vector<const BlockTable*> tables;
  for (const auto& sequence : running_) tables.push_back(&sequence->block_table());
  for (const Loading& loading : loading_) tables.push_back(&loading.sequence->block_table());
  return blocks_.CheckIntegrity(tables);
}

}  // namespace lm
