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
// A step has a token budget. It goes to the sequences that decode, a token or a few for each; then
// to prompts, the oldest first and in chunks; then to new sequences from the queue. Interactive
// prompts and sequences come before any of batch. (An encoder's text is computed in one step, even
// one that is longer than what is left of the budget.)
//
// Three rules keep work from being done twice and memory from being an error:
// - A burst. While a sequence computes a prefix that a waiting sequence could use, the waiting one
//   is held back; a moment later it finds the prefix in the tree. In a recurrent model the sequence
//   that computes stops where the two prompts part, so that a snapshot of its state can be taken
//   there. Where an interactive sequence waits for a batch sequence, the latter computes the prefix
//   with interactive priority.
// - Preemption. Where a sequence needs a block and none is free, the sequence admitted last gives
//   up its blocks and waits at the head of the queue, with its tokens kept: a batch sequence where
//   there is one. A batch sequence is preempted, too, for an interactive one to get in. The first
//   sequence always gets the blocks that it needs, so some sequence always goes on.
// - The store. Where more of a prompt is in the prefix store than in the cache, the sequence gets
//   blocks, and waits aside until the prefix has been read into them, while others are computed.
//
// A fourth keeps one hard constraint from delaying all sequences: following grammars takes at most
// SchedulerOptions::grammar_work of a step. A sequence that needs more waits, with its last token
// left out, and gets turns in later steps: interactive sequences as many as they need, then the
// batch sequences that have had the least.
//
// Guessed tokens that are wrong cost work, and nothing else: their keys and values are written
// over. A recurrent state cannot be written over; it is set aside before the step, and put back
// where a guess was not right as a whole. The tokens that were right are then computed again, in
// the next step, together with the sequence's next token.
//
// As long as there are interactive sequences, a step takes about as long as they may wait for a
// token (StepLimits): beside them only some of the batch rows decode, in turns, and batch prompts
// have the tokens that are left. But a few of both go on in every step: interactive sequences may
// come without end.
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
#include "engine/base/monotonic_time.h"
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
  // Has sequences guess tokens where the step has room for them; null: nothing is guessed.
  // REQUIRES: outlives the scheduler.
  Speculator* speculator = nullptr;
  // Has prefixes that are not in the cache; null: none are stored. REQUIRES: outlives the
  // scheduler.
  PrefixStore* store = nullptr;
};

// How much a step may compute, so that sequences get their next token in time.
struct StepLimits {
  // Tokens of prompts beside interactive, or batch, sequences that decode; at least 1. Batch
  // prompts beside an interactive prompt have what that leaves of beside_interactive, but at least
  // kLeastBatchTokens.
  int32_t beside_interactive = std::numeric_limits<int32_t>::max();
  int32_t beside_batch = std::numeric_limits<int32_t>::max();
  double token_seconds = 0;  // what a token of a prompt adds to a step; 0: not known
  // While there are interactive sequences, batch sequences sit out a step that has this many tokens
  // of decoding sequences already, guessed ones included; but kLeastBatchRows of them decode.
  int32_t interactive_decode = std::numeric_limits<int32_t>::max();
};

// Batch rows that decode in each step, however many interactive rows there are.
inline constexpr int32_t kLeastBatchRows = 4;
// Tokens of each step that batch prompts have, however many interactive prompts there are; of a
// small step half.
inline constexpr int32_t kLeastBatchTokens = 32;

// The least tokens that a prefix has to save for a sequence to be held back until it is computed.
inline constexpr int kLeastHeldPrefix = 32;

// Not thread-safe: the engine's thread owns it.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  // Queues a sequence. REQUIRES: it fits into the cache alone.
  void Add(std::unique_ptr<Sequence> sequence);

  // Some requests have been raised: their sequences are interactive from now on, behind those that
  // were.
  void MoveRaised();

  // Begins a step with turns for the sequences that wait for their grammars. Returns the sequences
  // that ended in their turns, and how.
  struct FollowedToEnd {
    Sequence* sequence = nullptr;
    absl::StatusOr<std::optional<FinishReason>> end;
  };
  std::vector<FollowedToEnd> FollowGrammars();
  // What following grammars may still take of this step.
  int64_t* grammar_work() { return &grammar_work_; }

  // Plans a step. Not empty where there are sequences that wait neither for their grammars nor for
  // a load. The plan's pointers to a sequence are valid until it is finished or taken.
  StepPlan Schedule(const StepLimits& limits = {});

  // Whether a step may begin behind the plan's before it is known what the latter samples. Not
  // where another step is better: since a waiting sequence could have a place in it, or a sequence
  // would guess tokens. (Of a plan of Follow that is only found out here, in the plan itself, which
  // stays as it is but for the sequences' guesses.)
  bool MayFollow(const StepLimits& limits, StepPlan* plan) const;
  // Plans that step: of each sequence the token that the step before samples, with the tokens
  // before it that are known and not computed. No entries where there is no room for it, or all
  // sequences end with the token that is sampled.
  StepPlan Follow(const StepPlan& plan);
  // Corrects a plan of Follow once the step before has been read, whose `sampled` and `late` are as
  // StepResults has them. Entries go whose token is not the one that the step computes; entries
  // whose grammar forces further tokens, which the step does not compute, do not sample.
  void Confirm(absl::Span<const absl::StatusOr<int32_t>> sampled, const std::vector<bool>& late,
               StepPlan* plan);
  // A step sampled for `rows` rows. For `missed` of them a step that begins early is of less use:
  // their grammars forced tokens that it does not compute, or it would compute another token.
  void RecordMissed(int64_t rows, int64_t missed);

  // The entry's tokens have been computed, and the next `tokens` of them stay: other sequences may
  // use these from now on. First all that are not guessed; then, any number of times, tokens that
  // were guessed right and have been appended.
  void Commit(const StepEntry& entry, int32_t tokens);
  // The entry's other tokens, all of them guessed, do not stay. Call after the last Commit.
  void Reject(const StepEntry& entry);
  // Whether it is known which tokens the sequence's grammar allows next. A sequence that has not
  // waited for its grammar gets its first turn here.
  bool IsReady(Sequence* sequence);
  // The load of the sequence's stored prefix is over; with `loaded` false, its blocks hold nothing
  // of use.
  void OnLoaded(const Sequence* sequence, bool loaded, MonotonicTime now);
  // All loads are over, without success.
  void EndLoads();
  // The plan's block operations failed.
  void DistrustBlocks() { blocks_.Distrust(); }
  // What is cached for a salt that will not ask again goes first.
  void Forget(absl::string_view salt) { blocks_.Forget(salt); }

  // Takes out a running sequence. Its blocks go to the prefix tree if `keep` (all that was computed
  // is right), else to the pool.
  std::unique_ptr<Sequence> Finish(Sequence* sequence, bool keep);
  std::vector<std::unique_ptr<Sequence>> TakeRunning();  // all, and keeps none of their blocks
  // Takes out all sequences, running or in a queue, for which `condition` holds; not those that
  // load.
  std::vector<std::unique_ptr<Sequence>> TakeIf(absl::FunctionRef<bool(const Sequence&)> condition);

  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_waiting() const {
    return static_cast<int64_t>(interactive_waiting_.size() + batch_waiting_.size()) +
           num_loading();
  }
  // Those of num_waiting() whose stored prefix is being read.
  int64_t num_loading() const { return static_cast<int64_t>(loading_.size()); }
  // Those of num_running() that wait for their grammars.
  int64_t num_following() const;
  // Whether an interactive sequence runs or waits in the queue.
  bool HasInteractive() const;
  // Whether batch sequences run beside it: then StepLimits::interactive_decode is of use.
  bool HasBatchBesideInteractive() const;
  bool idle() const { return running_.empty() && num_waiting() == 0; }
  const BlockManager& blocks() const { return blocks_; }
  absl::Status CheckIntegrity() const;

 private:
  struct Step;  // a plan that is being made, and what is left of the step (scheduler_step.h)

  // What a step computes (scheduler.cc).
  bool BatchPromptsMayGoOn() const;  // one runs, or has a place to
  void PlanDecodes(const StepLimits& limits, Step* step);
  void PlanPrompts(Priority priority, Step* step);
  bool Plan(Sequence* sequence, int32_t num_tokens, Step* step);
  bool PlanTokens(Sequence* sequence, int32_t num_tokens, Step* step);
  void Preempt(Sequence* sequence, Step* step);
  void Publish(Sequence* sequence, int32_t before, bool prompt_ends);

  // What is guessed in it (scheduler_guesses.cc).
  struct Guessing {
    std::vector<Speculator::Row> rows;
    std::vector<StepEntry*> entries;  // of the rows, one each
    Speculator::Limits limits;
  };
  void PlanGuesses(const StepLimits& limits, Step* step);
  Guessing FindGuessing(const StepLimits& limits, Step* step) const;
  bool MayGuess(const StepEntry& entry) const;

  // The step behind it (scheduler_follow.cc).
  bool AnswersGoOn() const;
  bool WouldGuess(const StepLimits& limits, StepPlan* plan) const;

  // How sequences come to run (scheduler_admission.cc).
  // A prefix that a waiting sequence had better wait for.
  struct Awaited {
    Sequence* sequence = nullptr;  // computes it; null: it is being loaded
    int32_t tokens = 0;
  };
  enum class Admission { kNo, kRuns, kLoads };
  bool AdmitWaiting(FairQueue* waiting, size_t most, Step* step);
  std::optional<Awaited> FindAwaited(const Sequence& sequence);
  Awaited LongestAwaited(const Sequence& sequence);
  void LendPriority(const Awaited& awaited, Step* step);
  Admission MakeRoomFor(Sequence* sequence, Step* step);
  Admission Admit(Sequence* sequence, Step* step);
  bool HasRoomFor(const Sequence& sequence, int64_t matched) const;
  bool HasRoomInWindows(const Sequence& sequence) const;
  int64_t WindowBlocks(const CacheClass& c, const Sequence& sequence) const;
  int64_t AvailableBlocks() const;
  bool BeginLoad(Sequence* sequence, int64_t matched, Step* step);
  bool MayStore(const Sequence& sequence) const;
  void PlanFound(Sequence* sequence, int64_t matched, int64_t cached, HeldState state, Step* step);
  void PlanPoints(Sequence* sequence, int64_t cached, int64_t known);
  void Enter(std::unique_ptr<Sequence> sequence);
  FairQueue& QueueOf(const Sequence& sequence) {
    return sequence.interactive() ? interactive_waiting_ : batch_waiting_;
  }

  const SchedulerOptions options_;
  const int32_t most_tokens_;  // of a sequence in a step: what windowed classes have room for
  BlockManager blocks_;
  FairQueue interactive_waiting_;
  FairQueue batch_waiting_;
  // The interactive sequences, then those of batch, each in the order of their admission.
  std::vector<std::unique_ptr<Sequence>> running_;
  // Sequences that have blocks into which their stored prefix is being read: those blocks are not
  // taken back meanwhile.
  struct Loading {
    std::unique_ptr<Sequence> sequence;
    int64_t tokens = 0;  // of the stored prefix
  };
  std::vector<Loading> loading_;
  int64_t planned_ = 0;        // plans of a sequence so far (Sequence::set_last_planned)
  double missed_share_ = 0;    // RecordMissed: the share of rows, of late
  int64_t grammar_work_ = 0;   // left of this step's
  int64_t tokens_reused_ = 0;  // StepPlan's, of plans without tokens: the next plan has them
  int64_t preemptions_ = 0;    // likewise
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_SCHEDULER_H_
