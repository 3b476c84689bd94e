// Scheduler decides which tokens the next step computes.
//
//   scheduler.Add(std::make_unique<Sequence>(...));
//   const StepPlan plan = scheduler.Schedule();
//   ... carry out plan.cache_ops, run the model over plan.entries ...
//   for (const StepEntry& entry : plan.entries) {
//     scheduler.Commit(entry, entry.num_tokens - entry.num_guessed);
//     ... take what was sampled; for tokens that were guessed right: Commit(entry, so many) ...
//     scheduler.Reject(entry);
//   }
//
// One token budget a step (which an encoder's last text may exceed: each is computed at once):
// first a token for every sequence that decodes, then prompts, the oldest first and in chunks, then
// new sequences from the queue; interactive prompts and sequences before any of batch. Three rules
// keep work from being done twice and memory from being an error:
// - A burst. While a sequence computes a prefix that a waiting one could use, the waiting one is
//   held back; a moment later it finds the prefix in the tree. In a recurrent model the one that
//   computes stops where the two part, so that a snapshot of its state can be taken there. Where an
//   interactive one waits so for one of batch, that computes the prefix with its priority.
// - Preemption. Where a sequence needs a block and there is none, the one admitted last gives up
//   its blocks and waits at the head of the queue, with its tokens kept; a batch one where there is
//   one, also for an interactive sequence to get in. The first one always gets what it needs, so
//   something always goes on.
// - The store. Where more of a prompt is in the prefix store than in the cache, the sequence gets
//   its blocks, and waits aside until that has been read into them, while others are computed.
// A guess that is wrong in part is no loss but of work: its keys and values are written over. A
// recurrent state cannot be taken back so; it is set aside before the step, and where not all of a
// guess is right, put back: then the tokens that stay are computed again with those of the next
// step, their sequence having one that is known and several that are to come.
// And one keeps a hard constraint from being everybody's: what grammars are followed takes a step
// no more than SchedulerOptions::grammar_work. A sequence that needs more waits, with its last
// token left out, and gets turns of later steps: interactive ones as many as they need, then those
// that have had the least.
//
// An interactive sequence, as long as there is one, has steps that are about as long as it may wait
// for a token: beside it only some of the batch rows decode, in turns, and prompts of batch have
// the tokens that StepLimits leaves them.
#ifndef LM_ENGINE_RUNTIME_SCHEDULER_H_
#define LM_ENGINE_RUNTIME_SCHEDULER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/cache/prefix_store.h"
#include "engine/model/step_bounds.h"
#include "engine/runtime/block_manager.h"
#include "engine/runtime/fair_queue.h"
#include "engine/runtime/sequence.h"
#include "engine/runtime/speculator.h"
#include "engine/runtime/step_plan.h"

namespace lm {

struct SchedulerOptions {
  int32_t step_tokens = kMostStepTokens;
  int32_t max_sequences = kMostSequences;  // and kInteractiveSeats more for interactive ones
  // Rows of a step that have logits beside the sampled ones: scored prompts, and guesses; >= 1.
  int32_t max_logit_rows = kMostStepTokens;
  CacheShape cache;
  bool prefix_cache = true;
  int64_t grammar_work = 10'000'000;  // in a step, see GrammarMatcher: about 10 ms
  // Has sequences guess tokens where the step has room for them; null: nothing is guessed. Outlives
  // this.
  Speculator* speculator = nullptr;
  // Has what is not in memory; null: nothing is stored. Outlives this.
  PrefixStore* store = nullptr;
};

// What a step may have, so that sequences get their next token in time.
struct StepLimits {
  // Tokens of prompts beside decoding sequences; at least 1. Those of batch that stand beside an
  // interactive prompt have of the first what that leaves.
  int32_t beside_interactive = std::numeric_limits<int32_t>::max();
  int32_t beside_batch = std::numeric_limits<int32_t>::max();
  double token_seconds = 0;  // what one adds to a step; 0: not known
  // Tokens of decoding sequences, guessed ones included, beyond which those of batch sit out while
  // there are interactive sequences; but kLeastBatchRows of them.
  int32_t interactive_decode = std::numeric_limits<int32_t>::max();
};

// Batch rows that decode in each step, whoever else does.
inline constexpr int32_t kLeastBatchRows = 4;

// What a prefix has to save, in tokens, for a sequence to be held back until it is computed.
inline constexpr int kLeastHeldPrefix = 32;

// Not thread-safe: the engine's thread owns it.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  // Queues a sequence. REQUIRES: it fits into the cache alone.
  void Add(std::unique_ptr<Sequence> sequence);

  // Some requests have been raised: their sequences are among the interactive ones from now on,
  // behind those that were.
  void MoveRaised();

  // Begins a step with turns for the sequences that wait for their grammars. Those of them that
  // came to an end, and it.
  struct FollowedToEnd {
    Sequence* sequence = nullptr;
    absl::StatusOr<std::optional<FinishReason>> end;
  };
  std::vector<FollowedToEnd> FollowGrammars();
  // What grammars may still take of this step.
  int64_t* grammar_work() { return &grammar_work_; }

  // Not empty where there are sequences and not all wait for their grammars. The plan's pointers
  // are valid until the sequence is taken. Beside decoding sequences the step has at most so many
  // tokens of prompts.
  StepPlan Schedule(const StepLimits& limits = {});

  // Whether a step may begin behind this one before it is known what this one samples: not where
  // that is better known first, since somebody waits who could do with another step, or would
  // guess. That is looked for here, in a plan of Follow.
  bool MayFollow(const StepLimits& limits, StepPlan* plan) const;
  // That step: a token more of each sequence that does not end with the one that is sampled, and
  // what else is known of its tokens. Nothing where there is no room for it.
  StepPlan Follow(const StepPlan& plan);
  // Of a step's rows those behind which a step that has begun is of less use: they got more than
  // one token, as their grammars force it, of which it has the first only, or one that it has not.
  void RecordMissed(int64_t rows, int64_t missed);
  // What of such a plan is right now that the step before has been read: entries whose tokens are
  // not what they would be go, and those that have more to compute, as their grammars force it, do
  // not sample. `sampled` as StepResults has it.
  void Confirm(absl::Span<const absl::StatusOr<int32_t>> sampled, const std::vector<bool>& late,
               StepPlan* plan);

  // The entry's tokens have been computed, and the next `tokens` of them stay: others may use those
  // from now on. First all that are not guessed; then, as often as one likes, those that were
  // guessed right and appended.
  void Commit(const StepEntry& entry, int32_t tokens);
  // The entry's other tokens, all guessed, do not stay. Call behind the last Commit.
  void Reject(const StepEntry& entry);
  // Whether all is known that the sequence's next token is sampled by; where that takes a turn with
  // its grammar it gets one, once.
  bool IsReady(Sequence* sequence);
  // The sequence's stored prefix is in its blocks; with false, they hold nothing of use.
  void OnLoaded(const Sequence* sequence, bool loaded, absl::Time now);
  // Nothing is read any more, and what was begun has come to nothing.
  void EndLoads();
  // The plan's block operations failed.
  void DistrustBlocks() { blocks_.Distrust(); }

  // Ends a running sequence: its blocks go back, to the prefix tree if `keep` (all that it has
  // computed is right), else to the pool.
  std::unique_ptr<Sequence> Finish(Sequence* sequence, bool keep);
  std::vector<std::unique_ptr<Sequence>> TakeRunning();  // all, without keeping anything
  // Ends all sequences, running or waiting, for which `condition` holds.
  std::vector<std::unique_ptr<Sequence>> TakeIf(absl::FunctionRef<bool(const Sequence&)> condition);

  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_waiting() const {
    return static_cast<int64_t>(interactive_waiting_.size() + batch_waiting_.size()) +
           num_loading();
  }
  // Of those, the ones whose stored prefix is being read.
  int64_t num_loading() const { return static_cast<int64_t>(loading_.size()); }
  // Of the running ones, those that wait for their grammars.
  int64_t num_following() const;
  bool HasInteractive() const;  // running or waiting in the queue
  // ... and running ones of batch: StepLimits::interactive_decode is of use.
  bool HasBatchBesideInteractive() const;
  bool idle() const { return running_.empty() && num_waiting() == 0; }
  const BlockManager& blocks() const { return blocks_; }
  absl::Status CheckIntegrity() const;

 private:
  struct Step;
  void PlanDecodes(const StepLimits& limits, Step* step);
  void PlanPrompts(Priority priority, Step* step);
  bool AdmitWaiting(FairQueue* waiting, size_t most, Step* step);
  bool Plan(Sequence* sequence, int32_t num_tokens, Step* step);
  bool PlanTokens(Sequence* sequence, int32_t num_tokens, Step* step);
  void PlanGuesses(const StepLimits& limits, Step* step);
  struct Guessing {
    std::vector<Speculator::Row> rows;
    std::vector<StepEntry*> entries;  // theirs
    Speculator::Limits limits;
  };
  Guessing FindGuessing(const StepLimits& limits, Step* step) const;
  // A prefix that is being computed, or loaded: by a null sequence.
  struct Awaited {
    Sequence* sequence = nullptr;
    int32_t tokens = 0;
  };
  std::optional<Awaited> FindAwaited(const Sequence& sequence);
  void LendPriority(const Awaited& awaited, Step* step);
  enum class Admission { kNo, kRuns, kLoads };
  Admission Admit(Sequence* sequence, Step* step);
  bool BeginLoad(Sequence* sequence, int64_t matched, Step* step);
  bool MayStore(const Sequence& sequence) const;
  void PlanFound(Sequence* sequence, int64_t matched, int64_t cached, HeldState state, Step* step);
  void PlanPoints(Sequence* sequence, int64_t cached, int64_t known);
  void Enter(std::unique_ptr<Sequence> sequence);
  void Publish(Sequence* sequence, int32_t before, bool prompt_ends);
  Admission MakeRoomFor(Sequence* sequence, Step* step);
  FairQueue& QueueOf(const Sequence& sequence) {
    return sequence.interactive() ? interactive_waiting_ : batch_waiting_;
  }
  int64_t AvailableBlocks() const;
  bool HasRoomInWindows(const Sequence& sequence) const;
  int64_t WindowBlocks(const CacheClass& c, const Sequence& sequence) const;
  void Preempt(Sequence* sequence, Step* step);

  const SchedulerOptions options_;
  const int32_t most_tokens_;  // of a sequence in a step: what windowed classes have room for
  BlockManager blocks_;
  // Interactive ones, then batch ones, each in the order of their admission.
  std::vector<std::unique_ptr<Sequence>> running_;
  // Those that have their blocks, into which others write: they are not taken back meanwhile.
  struct Loading {
    std::unique_ptr<Sequence> sequence;
    int64_t tokens = 0;  // that it will have
  };
  std::vector<Loading> loading_;
  int64_t planned_ = 0;        // sequences, in all steps
  double missed_share_ = 0;    // RecordMissed's, of late
  int64_t grammar_work_ = 0;   // left of this step's
  int64_t tokens_reused_ = 0;  // of plans without tokens, for the next
  int64_t preemptions_ = 0;
  FairQueue interactive_waiting_;
  FairQueue batch_waiting_;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_SCHEDULER_H_
