// EngineCounts: what an engine has done, counted as it goes, for lm_stats and lm_requests.
//
//   EngineCounts counts(cache, "a draft model");
//   counts.AddStep(plan, CountTokens(plan), work, took);  // each step that the model has run
//   counts.AddEnded(ended);                               // before the answers are delivered
//   const EngineStats stats = counts.Stats();
#ifndef LM_ENGINE_RUNTIME_ENGINE_COUNTS_H_
#define LM_ENGINE_RUNTIME_ENGINE_COUNTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/model/language_model.h"
#include "engine/runtime/engine_stats.h"
#include "engine/runtime/latency_window.h"
#include "engine/runtime/request_log.h"
#include "engine/runtime/salt_counts.h"
#include "engine/runtime/scheduler.h"
#include "engine/runtime/sequence.h"
#include "engine/runtime/step_plan.h"
#include "engine/runtime/work_meter.h"

namespace lm {

// Not thread-safe: the engine's lock guards it. What it does under that lock is short.
class EngineCounts {
 public:
  // `draft_model`: EngineStats::draft_model.
  EngineCounts(const CacheShape& cache, std::string draft_model);

  // A step of the plan was run, of this work, in this time.
  void AddStep(const StepPlan& plan, const StepTokens& tokens, const StepWork& work,
               absl::Duration took);
  // A step of `rows` sampled rows had `drafted` guessed tokens, of which `accepted` were right.
  void AddGuesses(int64_t drafted, int64_t accepted, int64_t rows);
  // A token was sampled `latency` after the one before it; the first after its submission.
  void AddToken(absl::Duration latency, bool first);
  // Requests have come to their ends.
  void AddEnded(absl::Span<const EndedSequence> ended);
  // Requests have failed for which there was no memory. Allocates nothing.
  void AddLost(int64_t requests) noexcept;
  // What runs now, and what the cache holds.
  void SetScheduled(const Scheduler& scheduler);
  // Weights have been laid out; `more`: some are left.
  void SetLaidOut(bool more);

  // All but EngineStats::queued, which is the engine's to tell.
  EngineStats Stats() const;
  // Without the work that was done while weights were still being laid out: steps were slower then.
  EngineStats StatsSinceLaidOut() const;
  RequestCounts OfSalt(absl::string_view salt) const { return of_salts_.Get(salt); }
  // The last requests of a salt that have ended, the oldest first.
  std::vector<RequestRecord> RecentRequests(absl::string_view salt) const { return log_.Of(salt); }

 private:
  EngineStats stats_;            // without the latencies
  bool laying_out_ = false;      // weights are being laid out
  EngineStats before_laid_out_;  // Stats() when the last weights had been laid out
  LatencyWindow time_to_first_token_;
  LatencyWindow inter_token_latency_;
  SaltCounts<RequestCounts> of_salts_;
  RequestLog log_;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_ENGINE_COUNTS_H_
