// StepPlan: what the next step computes, as the scheduler has decided.
//
//   StepPlan plan = scheduler.Schedule();
//   const StepTokens tokens = CountTokens(plan);       // of prompts, of answers, guessed ones
//   BeginShares(plan, MonotonicTime::Now());                    // whose time the step takes
//   ... carry out plan.cache_ops, compute the tokens of plan.entries ...
//   EndShares(plan, MonotonicTime::Now());
#ifndef LM_ENGINE_RUNTIME_STEP_PLAN_H_
#define LM_ENGINE_RUNTIME_STEP_PLAN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "engine/base/monotonic_time.h"
#include "engine/cache/prefix_store.h"
#include "engine/runtime/block_manager.h"
#include "engine/runtime/sequence.h"

namespace lm {

// A sequence's tokens [first, first + num_tokens), the last of which may be guessed
// (Sequence::guessed_context).
struct StepEntry {
  Sequence* sequence = nullptr;
  int32_t first = 0;  // sequence->computed(), before the step
  int32_t num_tokens = 0;
  int32_t num_guessed = 0;  // the last ones of num_tokens
  bool decode = false;      // else tokens of a prompt
  // A token is picked behind the last token that is not guessed, and at each of guessed_points().
  bool samples = false;
  int32_t speculator_row = -1;  // the sequence's number for Speculator::Judge
  // In a plan of Scheduler::Follow: the last token is the one that the step before samples as its
  // sample of this number. -1: all tokens are known.
  int32_t sampled = -1;
  int32_t row = -1;             // of the last token in a queued step
  int32_t num_logits = 0;       // scoring: the logits of the last num_logits tokens are wanted
  Sequence::Range pooled = {};  // the hidden states of these tokens are wanted, counted from first
};

struct StepPlan {
  std::vector<CacheOp> cache_ops;  // before the tokens are computed, in this order
  std::vector<StepEntry> entries;
  bool follows = false;       // made by Scheduler::Follow
  int64_t tokens_reused = 0;  // taken from the prefix cache by the sequences admitted
  int64_t preemptions = 0;
  // Where there is a store: prefixes that a sequence found in the cache, and which so were of use
  // twice.
  struct Found {
    Sequence* sequence = nullptr;
    int64_t tokens = 0;
    HeldState state = {};  // of a recurrent model: its state behind the prefix
  };
  std::vector<Found> found;
  // A stored prefix to be read into a sequence's blocks once cache_ops are done;
  // Scheduler::OnLoaded ends it.
  struct Load {
    Sequence* sequence = nullptr;
    std::shared_ptr<const StoredPrefix> stored;
    int64_t begin = 0;  // the first block of class 0 that is to be read
  };
  std::vector<Load> loads;
};

// The tokens that a plan computes.
struct StepTokens {
  int64_t prefilled = 0;  // in entries of prompts
  int64_t decoded = 0;    // in entries that decode
  int64_t guessed = 0;    // those of prefilled that are guesses of what comes behind a prompt
  int64_t rows = 0;       // entries that decode
};
StepTokens CountTokens(const StepPlan& plan);

// Puts entries with the same adapters side by side: the model computes their products as one.
void PutAdaptersTogether(StepPlan* plan);

// The requests of the plan's entries.
std::vector<const Request*> RequestsOf(const StepPlan& plan);

// A step of the plan's entries begins, or has ended: each sequence's time goes on meanwhile
// (Sequence::BeginShare).
void BeginShares(const StepPlan& plan, MonotonicTime now);
void EndShares(const StepPlan& plan, MonotonicTime now);

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_STEP_PLAN_H_
