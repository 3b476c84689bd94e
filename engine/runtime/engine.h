// Engine: one thread that runs one model for everybody who asks.
//
//   ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine, Engine::Start(std::move(model), {}));
//   auto request = engine->Submit({.prompt = tokens});
//   if (request.ok()) (*request)->WaitFor(absl::InfiniteDuration());
//
// The thread repeats Step(): schedule a batch, run the model over it, sample, hand out what is
// finished. It sleeps where there is nothing to do.
#ifndef LM_ENGINE_RUNTIME_ENGINE_H_
#define LM_ENGINE_RUNTIME_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/model/model.h"
#include "engine/runtime/batch_cancellation.h"
#include "engine/runtime/cache_inspection.h"
#include "engine/runtime/constraint_cache.h"
#include "engine/runtime/engine_stats.h"
#include "engine/runtime/fork_guard.h"
#include "engine/runtime/latency_window.h"
#include "engine/runtime/request.h"
#include "engine/runtime/request_log.h"
#include "engine/runtime/salt_counts.h"
#include "engine/runtime/scheduler.h"
#include "engine/runtime/speculator.h"
#include "engine/runtime/step_pacer.h"
#include "engine/runtime/stored_prefixes.h"
#include "engine/runtime/work_meter.h"

namespace lm {

struct EngineOptions {
  int32_t step_tokens =
      kMostStepTokens;  // token budget of a step: decodes first, then prefill chunks; >= 1
  int32_t max_sequences = kMostSequences;  // decoding together; >= 1
  int32_t max_queued = 100000;             // waiting requests beyond which Submit refuses
  // The time between two tokens of an answer that prompts of others shall not stretch further; the
  // first also that to which batch rows keep a step beside interactive ones.
  absl::Duration interactive_itl = absl::Milliseconds(50);
  absl::Duration batch_itl = absl::InfiniteDuration();
  bool prefix_cache = true;
  int64_t grammar_work =
      10'000'000;  // what constraints may take of a step; about a nanosecond each
};

// Thread-safe. In a forked child of its process an engine refuses what would wait for its thread.
class Engine {
 public:
  // ResourceExhausted where the system gives no thread.
  static absl::StatusOr<std::shared_ptr<Engine>> Start(std::unique_ptr<Model> model,
                                                       const EngineOptions& options);
  // Cancels what is left, with an error that says so, and joins the thread.
  ~Engine();

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Queues a request. InvalidArgument for an empty prompt, a token outside the vocabulary or an
  // option out of range, or a constraint that does not compile; OutOfRange, with both numbers, for
  // a prompt that does not fit the context (or the KV cache) with at least one token to spare;
  // ResourceExhausted where the queue is full; FailedPrecondition after Stop or fork; Unavailable
  // where a device is lost.
  // `listener`, which may be null, is told of the request's fate.
  absl::StatusOr<std::shared_ptr<Request>> Submit(
      RequestSpec spec, std::shared_ptr<RequestListener> listener = nullptr);

  // Submit's errors that do not depend on what else is going on.
  absl::Status Validate(const RequestSpec& spec) const;

  // What the destructor does, and what exit() has every engine do; nothing more can be asked after.
  // Idempotent.
  void Stop();

  // InvalidArgument where the constraint of the options, if any, does not compile: what Submit
  // would say of every request. What was compiled is kept.
  absl::Status CheckConstraint(const GenerationOptions& options) const;
  // The same, with the constraint; null where the options have none.
  absl::StatusOr<std::shared_ptr<const CompiledConstraint>> CompiledConstraintOf(
      const GenerationOptions& options) const;

  // Whether a device that the model was on is lost, or its packed weights were damaged: all that
  // was asked has failed, and so does what is asked from now on.
  bool lost() const;

  const Model& model() const { return *model_; }
  // The longest sequence, prompt and answer together: the context, or the whole KV cache where that
  // is less.
  int32_t max_sequence_tokens() const { return max_sequence_tokens_; }
  EngineStats Stats() const;
  // Without the work that was done while weights were still being laid out: steps were slower then.
  EngineStats StatsSinceLaidOut() const;
  RequestCounts CountsOf(absl::string_view salt) const;
  // The last requests of a salt that are finished, the oldest first.
  std::vector<RequestRecord> RecentRequests(absl::string_view salt) const;
  // What is stored of prompts that were computed here or in other processes.
  const StoredPrefixes& stored() const { return stored_; }
  // Asks what the prefix cache holds for a salt; an engine that is stopped answers "nothing".
  std::shared_ptr<CacheInspection> InspectCache(std::string salt);

 private:
  Engine(std::unique_ptr<Model> model, const EngineOptions& options);

  // The engine's thread --------------------------------------------------------------------------
  struct Finished {
    std::unique_ptr<Sequence> sequence;
    Generation result;
  };
  void Run();
  void AskToStop();    // from any thread
  bool WaitForWork();  // false: stop
  void TakeIncoming();
  void Step();
  void AnswerInspections();
  void DropAbandoned();
  void MoveRaised();
  void FollowGrammars();
  void EndSequence(Sequence* sequence, const absl::StatusOr<std::optional<FinishReason>>& end,
                   absl::Time now);
  void Fail(const StepPlan& plan, const absl::Status& status);
  static void BeginShares(const StepPlan& plan, absl::Time now);
  static std::vector<const Request*> RequestsOf(const StepPlan& plan);
  absl::Status RunModel(const StepPlan& plan);
  // Steps that are queued (engine_queue.cc).
  bool MayFollow(StepPlan* plan) const;
  void RunQueue(StepPlan plan);
  absl::Status BeginStep(StepPlan* plan, size_t num_picked);
  absl::StatusOr<size_t> PickInStep(const StepPlan& plan);
  absl::Status AwaitStep(const StepPlan& plan);
  absl::Status RunStep(ModelStep step);
  void DistrustBlocks();
  ModelStep MakeModelStep(const StepPlan& plan) const;
  std::vector<uint64_t> WantedLogits(const StepPlan& plan) const;
  void Advance(const StepPlan& plan, absl::Time now);
  // Of the rows of an entry behind which a token is sampled, one after the other.
  struct SampledValues {
    absl::Span<const float> logits = {};  // empty where nobody reads them
    absl::Span<const float> hidden = {};  // likewise
  };
  absl::StatusOr<std::optional<FinishReason>> TakeSamples(
      const StepEntry& entry, const absl::Status& known,
      absl::Span<const absl::StatusOr<int32_t>> sampled, const SampledValues& values,
      absl::Time now);
  absl::Status CarryOut(StepPlan* plan);
  void EndLoads();
  void FailBatch(const StepPlan& plan, const absl::Status& status);
  void FailAll(const absl::Status& status);
  void LoseModel(const absl::Status& status);
  void Finish(std::unique_ptr<Sequence> sequence, Generation result);
  static void Count(const Finished& finished, RequestCounts* counts);
  void CountFreeAnswer(const Finished& finished) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Deliver();
  StepLimits MakeStepLimits() const;
  EngineStats StatsNow() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RecordStep(const StepPlan& plan, const StepWork& work, absl::Duration took);
  void RecordGuesses(const StepPlan& plan);
  void RecordToken(absl::Duration latency, bool first);
  void ReportQueue();
  void DropScheduled() noexcept;
  void DropQueued() noexcept;
  void Recover() noexcept;
  std::unique_ptr<Scheduler> MakeScheduler() const;
  std::unique_ptr<Speculator> MakeSpeculator() const;
  void LayOutMore();
  void RecordLayingOut(bool more);

  const std::unique_ptr<Model> model_;
  const EngineOptions options_;
  const int32_t max_sequence_tokens_;
  const ForkGuard fork_guard_;
  const absl::Status stopped_ = absl::FailedPreconditionError("the engine has been stopped");
  const std::shared_ptr<BatchCancellation> cancellation_;
  const std::shared_ptr<std::atomic<uint64_t>> raises_;  // of requests
  const std::unique_ptr<ConstraintCache> constraints_;

  mutable absl::Mutex mutex_;
  std::deque<std::shared_ptr<Request>> incoming_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<CacheInspection>> inspections_ ABSL_GUARDED_BY(mutex_);
  absl::Status accepting_ ABSL_GUARDED_BY(mutex_);  // not OK: why Submit refuses
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool loaded_ ABSL_GUARDED_BY(mutex_) = false;      // the loader has something that is done
  int64_t num_waiting_ ABSL_GUARDED_BY(mutex_) = 0;  // in the scheduler, as it was last
  EngineStats stats_ ABSL_GUARDED_BY(mutex_);        // without what StatsNow() adds
  bool laying_out_ ABSL_GUARDED_BY(mutex_) = false;  // weights are being laid out
  EngineStats before_laid_out_ ABSL_GUARDED_BY(mutex_);
  RequestLog log_ ABSL_GUARDED_BY(mutex_);
  SaltCounts<RequestCounts> counts_ ABSL_GUARDED_BY(mutex_);
  LatencyWindow time_to_first_token_ ABSL_GUARDED_BY(mutex_);
  LatencyWindow inter_token_latency_ ABSL_GUARDED_BY(mutex_);

  // Only the engine's thread touches these, but the constant methods of stored_.
  StoredPrefixes stored_;  // outlives the scheduler
  std::unique_ptr<Speculator> speculator_;
  std::unique_ptr<Scheduler> scheduler_;  // null: there was no memory for it, and the engine stops
  bool recovered_ = false;                // by the turn before
  WorkMeter work_meter_;
  StepPacer pacer_;
  StepResults results_;  // of the step
  StepPlan* behind_ = nullptr;  // the step behind that, where it has begun
  struct Guesses {
    int64_t drafted = 0;
    int64_t accepted = 0;
  };
  Guesses guesses_;                 // of this step
  std::vector<Finished> finished_;  // of this step
  bool look_for_abandoned_ = false;
  bool ops_failed_ = false;                          // a step's block operations, until FailBatch
  bool only_loads_ = false;                          // nothing can go on before one is done
  bool weights_left_ = true;                         // the model may have weights to lay out
  absl::Time lay_out_again_ = absl::InfinitePast();  // not before
  absl::Duration step_took_ = absl::ZeroDuration();  // the last one, until LayOutMore
  uint64_t cancels_seen_ = 0;
  uint64_t raises_seen_ = 0;

  absl::once_flag join_once_;
  std::thread thread_;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_ENGINE_H_
