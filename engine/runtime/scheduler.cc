#include "engine/runtime/scheduler.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

#include "engine/backend/backend.h"
#include "engine/runtime/scheduler_step.h"

namespace lm {
namespace {

// The most tokens of a sequence in a step. Blocks of a windowed class hold the window, the tokens
// of the step, and at either end a block that is used in part.
int32_t MostTokens(const SchedulerOptions& options) {
  int64_t most = options.step_tokens;
  for (const CacheClass& c : options.cache.classes) {
    if (c.window == 0) continue;
    most = std::min(most, (int64_t{c.num_blocks} - 2) * kKvBlockTokens - c.window);
  }
  return static_cast<int32_t>(std::max<int64_t>(most, 1));
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
  // Half of the step's work is for turns, the rest for sequences that do not wait yet (IsReady).
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
  // Interactive sequences have turns until none waits any more, or that half is spent.
  for (int64_t before = -1; before < spent() && spent() < all_turns;) {
    before = spent();
    for (Sequence* sequence : interactive) {
      if (sequence->waited_for_work() > 0 && spent() < all_turns) give_turn(sequence);
    }
  }
  // Batch sequences have a turn each until it is spent; one of them always has.
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
  if (BatchPromptsMayGoOn()) step.kept = std::clamp(step.budget / 2, 0, kLeastBatchTokens);
  step.budget -= step.kept;
  PlanPrompts(Priority::kInteractive, &step);
  const bool room = AdmitWaiting(&interactive_waiting_, most + kInteractiveSeats, &step);
  step.budget += step.kept;
  if (step.interactive) {
    const int32_t left = limits.beside_interactive - step.prompt_tokens;
    step.prompt_limit = std::max(std::min(step.prompt_limit, left), step.kept);
  }
  PlanPrompts(Priority::kBatch, &step);
  if (room) AdmitWaiting(&batch_waiting_, most, &step);
  // The engine counts plans with tokens only: what this one has to count, the next plan has.
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

bool Scheduler::HasInteractive() const {
  return interactive_waiting_.size() > 0 || (!running_.empty() && running_.front()->interactive());
}

bool Scheduler::BatchPromptsMayGoOn() const {
  const bool one_may_enter =
      batch_waiting_.size() > 0 &&
      running_.size() + loading_.size() < static_cast<size_t>(options_.max_sequences);
  return one_may_enter || std::any_of(running_.begin(), running_.end(), [](const auto& sequence) {
           return !sequence->interactive() && !sequence->decoding();
         });
}

bool Scheduler::HasBatchBesideInteractive() const {
  return HasInteractive() && !running_.empty() && !running_.back()->interactive();
}

// Plans a token, or a few, of each sequence that decodes. Planning one may preempt others, and the
// sequence itself: a preempted sequence does not decode any more.
void Scheduler::PlanDecodes(const StepLimits& limits, Step* step) {
  std::vector<Sequence*> decoding;
  for (const auto& sequence : running_) {
    if (sequence->decoding()) decoding.push_back(sequence.get());
  }
  const bool limited =
      step->interactive && limits.interactive_decode < std::numeric_limits<int32_t>::max();
  if (limited) {  // of batch, the sequences that have sat out the longest come first
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

// Plans tokens of the prompts that run already.
void Scheduler::PlanPrompts(Priority priority, Step* step) {
  for (size_t i = 0; i < running_.size() && step->prompt_budget() > 0; ++i) {
    Sequence* sequence = running_[i].get();
    if (sequence->decoding() || sequence->priority() != priority) continue;
    if (step->HasPlanned(*sequence)) continue;  // by LendPriority
    Plan(sequence, sequence->remaining(), step);
  }
}

// Plans up to `num_tokens` tokens of a running sequence. False where it had to be preempted itself.
bool Scheduler::Plan(Sequence* sequence, int32_t num_tokens, Step* step) {
  if (options_.cache.whole_sequences) {  // the whole text, even if the budget is less
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

// Plans exactly `num_tokens` tokens. False where the sequence had to be preempted itself.
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

// Puts the sequence that was admitted last back into its queue, without its blocks.
void Scheduler::Preempt(Sequence* sequence, Step* step) {
  assert(running_.back().get() == sequence);
  std::erase_if(step->plan.entries, [sequence, step](const StepEntry& entry) {
    if (entry.sequence != sequence) return false;
    step->Count(entry, -1);  // the step has room for others again
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
  if (sequence->block_table().aside >= 0) return;  // a guess is judged first: Reject publishes
  Publish(sequence, before, /*prompt_ends=*/!entry.decode && sequence->remaining() == 0);
}

// The sequence has computed its tokens from position `before` on: puts them into the prefix tree,
// where other sequences find them, and gives back the blocks that no later token sees.
void Scheduler::Publish(Sequence* sequence, int32_t before, bool prompt_ends) {
  BlockTable& table = sequence->block_table();
  // While decoding, only when a block has become full, which is rare. At the end of a prompt the
  // last block too, full or not: other prompts may begin with a part of it.
  const Snapshot snapshot = sequence->TakeSnapshotPoint();
  if (!sequence->wants_every_token() &&
      (prompt_ends || snapshot != Snapshot::kNone ||
       before / kKvBlockTokens != sequence->computed() / kKvBlockTokens)) {
    blocks_.Publish(sequence->prefix_owner(), sequence->tokens().subspan(0, sequence->computed()),
                    prompt_ends || snapshot != Snapshot::kNone, snapshot, &table);
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
                    /*partial=*/true, Snapshot::kNone, &sequence->block_table());
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
