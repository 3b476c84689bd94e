// Engine: one thread that runs one model for all who ask.
//
//   ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine, Engine::Start(std::move(model), {}));
//   auto request = engine->Submit({.prompt = tokens});
//   if (request.ok()) (*request)->WaitFor(absl::InfiniteDuration());
//
// Submit puts a request into a queue. The thread repeats a turn (Run): it takes what is queued,
// schedules a step, has the model compute it, samples, and delivers the answers that have ended. It
// sleeps where there is nothing to do.
//
//   Submit -> incoming_ -> TakeIncoming -> scheduler_ -> Step -> ended_ -> Deliver -> Request
//   callers   (mutex_)     |------------------ the engine's thread ------------------|
#ifndef LM_ENGINE_RUNTIME_ENGINE_H_
#define LM_ENGINE_RUNTIME_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/base/cond_var.h"
#include "engine/base/monotonic_time.h"
#include "engine/model/model.h"
#include "engine/runtime/batch_cancellation.h"
#include "engine/runtime/cache_inspection.h"
#include "engine/runtime/constraint_cache.h"
#include "engine/runtime/engine_counts.h"
#include "engine/runtime/fork_guard.h"
#include "engine/runtime/request.h"
#include "engine/runtime/scheduler.h"
#include "engine/runtime/speculator.h"
#include "engine/runtime/step_pacer.h"
#include "engine/runtime/stored_prefixes.h"
#include "engine/runtime/weight_layout.h"
#include "engine/runtime/work_meter.h"

namespace lm {

struct EngineOptions {
  // The token budget of a step: decodes first, then prefill chunks; >= 1.
  int32_t step_tokens = kMostStepTokens;
  int32_t max_sequences = kMostSequences;  // decoding together; >= 1
  int32_t max_queued = 100000;             // waiting requests beyond which Submit refuses
  // How far prompts may stretch the time between two tokens of an interactive, or a batch, answer
  // beside them. Batch rows that decode beside interactive ones keep to interactive_itl too.
  absl::Duration interactive_itl = absl::Milliseconds(50);
  absl::Duration batch_itl = absl::InfiniteDuration();
  bool prefix_cache = true;
  int64_t grammar_work = 10'000'000;  // of a step for following constraints, about nanoseconds
};

// Thread-safe. In a forked child of its process an engine refuses all that would wait for its
// thread.
class Engine {
 public:
  // ResourceExhausted where the system gives no thread.
  static absl::StatusOr<std::shared_ptr<Engine>> Start(std::unique_ptr<Model> model,
                                                       const EngineOptions& options);
  // Cancels the requests that are left, with an error that says so, and joins the thread.
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

  // The errors of Submit that depend on the request alone, but for its constraint.
  absl::Status Validate(const RequestSpec& spec) const;

  // What the destructor does, and what exit() has every engine do: no request is taken any more.
  // Idempotent.
  void Stop();

  // InvalidArgument where the constraint of the options, if any, does not compile: what Submit
  // would say of every request. A constraint that was compiled is kept for the requests.
  absl::Status CheckConstraint(const GenerationOptions& options) const;
  // The same, with the constraint; null where the options have none.
  absl::StatusOr<std::shared_ptr<const CompiledConstraint>> CompiledConstraintOf(
      const GenerationOptions& options) const;

  // Whether the model is lost (model_loss.h): all requests have failed, and so will new ones.
  bool lost() const;

  const Model& model() const { return *model_; }
  // The longest sequence, prompt and answer together: the context, or the whole KV cache where that
  // is less.
  int32_t max_sequence_tokens() const { return max_sequence_tokens_; }
  EngineStats Stats() const;
  // Without the work that was done while weights were still being laid out, by slower steps.
  EngineStats StatsSinceLaidOut() const;
  RequestCounts CountsOf(absl::string_view salt) const;
  // The last requests of a salt that are finished, the oldest first.
  std::vector<RequestRecord> RecentRequests(absl::string_view salt) const;
  // What is stored of prompts that were computed here or in other processes.
  const StoredPrefixes& stored() const { return stored_; }
  // Asks what the prefix cache holds for a salt; an engine that is stopped answers "nothing".
  std::shared_ptr<CacheInspection> InspectCache(std::string salt);
  // Nobody will use the salt again: what the prefix cache holds for it goes first.
  void Forget(std::string salt);

 private:
  Engine(std::unique_ptr<Model> model, const EngineOptions& options);
  std::unique_ptr<Scheduler> MakeScheduler() const;
  std::unique_ptr<Speculator> MakeSpeculator() const;

  // All functions below are for the engine's thread, but AskToStop, HasNews and num_queued.

  // The loop (engine_loop.cc). Run repeats the six calls behind WaitForWork until Stop.
  void Run();
  void AskToStop();          // from any thread
  bool WaitForWork();        // false: stop
  void AnswerInspections();  // 1. questions about the cache
  void EndLoads();           // 2. sequences whose stored prefixes have been read go on
  void TakeIncoming();       // 3. requests become sequences of the scheduler
  void Step();               // 4. one step, or a queue of them
  void ForgetSalts();        // 5. that nobody uses any more
  void LayOutMore();         // 6. weights, in the gap between two steps
  void KeepWeights();        // 7. that are in a file which somebody waits to change
  // Of Step: what is between two steps of the model.
  void DropAbandoned();
  void MoveRaised();
  void FollowGrammars();
  StepLimits MakeStepLimits() const;
  absl::Status BeginLoads(StepPlan* plan);
  void ReportQueue();
  // Whether there is anything to do for the loop but to go on with what runs.
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t num_queued() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // A step (engine_step.cc): runs the model over a plan, and takes the results.
  struct Sampled;  // for an entry
  struct Guesses {
    int64_t drafted = 0;
    int64_t accepted = 0;
  };
  void RunAlone(const StepPlan& plan);
  absl::Status RunModel(ModelStep step);
  void RecordStep(const StepPlan& plan, const StepWork& work, absl::Duration took);
  void Advance(const StepPlan& plan, MonotonicTime now);
  absl::StatusOr<std::optional<FinishReason>> TakeSamples(const StepEntry& entry,
                                                          const Sampled& sampled, MonotonicTime now,
                                                          Guesses* guesses);
  void DistrustBlocks();

  // Steps that begin before the one before them has been read (engine_queue.cc).
  bool MayFollow(StepPlan* plan) const;
  void RunQueue(StepPlan plan);
  absl::Status BeginStep(StepPlan* plan, size_t num_picked);
  absl::StatusOr<size_t> PickInStep(const StepPlan& plan);
  absl::Status AwaitStep(const StepPlan& plan);

  // How requests end (engine_ends.cc): with an answer, with an error, for want of memory.
  void EndSequence(Sequence* sequence, const absl::StatusOr<std::optional<FinishReason>>& end,
                   MonotonicTime now);
  void Fail(const StepPlan& plan, const absl::Status& status);
  void FailBatch(const StepPlan& plan, const absl::Status& status);
  void FailAll(const absl::Status& status);
  void LoseModel(const absl::Status& status);
  void Finish(std::unique_ptr<Sequence> sequence, Generation result);
  void Deliver();
  void DropScheduled() noexcept;
  void DropQueued() noexcept;
  void Recover() noexcept;

  // Set once, and thread-safe.
  const std::unique_ptr<Model> model_;  // its language_model() is the engine's thread's
  const EngineOptions options_;
  const int32_t max_sequence_tokens_;
  const ForkGuard fork_guard_;
  const absl::Status stopped_ = absl::FailedPreconditionError("the engine has been stopped");
  const std::shared_ptr<BatchCancellation> cancellation_;
  const std::shared_ptr<std::atomic<uint64_t>> raises_;  // how often a request was raised
  const std::unique_ptr<ConstraintCache> constraints_;

  // The one lock guards what callers and the engine's thread share. It is held for moments, never
  // while the model runs.
  mutable absl::Mutex mutex_;
  // The queue, and what else the thread is told.
  std::deque<std::shared_ptr<Request>> incoming_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<CacheInspection>> inspections_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> forgotten_ ABSL_GUARDED_BY(mutex_);  // salts
  absl::Status accepting_ ABSL_GUARDED_BY(mutex_);  // not OK: why Submit refuses
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool loaded_ ABSL_GUARDED_BY(mutex_) = false;  // a stored prefix has been read
  CondVar news_;                                 // of these
  // What the thread tells.
  int64_t num_waiting_ ABSL_GUARDED_BY(mutex_) = 0;  // in the scheduler, as last reported
  EngineCounts counts_ ABSL_GUARDED_BY(mutex_);

  // The engine's thread's; of stored_ any thread may call the constant methods.
  StoredPrefixes stored_;                   // the scheduler uses it
  std::unique_ptr<Speculator> speculator_;  // the scheduler uses it
  std::unique_ptr<Scheduler> scheduler_;  // null: there was no memory for it, and the engine stops
  WorkMeter work_meter_;
  StepPacer pacer_;
  WeightLayout weight_layout_;
  MonotonicTime keep_again_ = MonotonicTime::InfinitePast();  // KeepWeights does nothing before
  StepResults results_;               // of the step that was run last
  StepPlan* behind_ = nullptr;        // the step that has begun behind it
  std::vector<EndedSequence> ended_;  // to be delivered
  bool look_for_abandoned_ = false;   // DropAbandoned looks, whatever cancels_seen_ says
  bool ops_failed_ = false;           // a step's cache operations have, until FailBatch
  bool only_loads_ = false;           // no sequence can go on before a load is over
  bool recovered_ = false;            // the turn before ended in Recover
  uint64_t cancels_seen_ = 0;         // of cancellation_
  uint64_t raises_seen_ = 0;          // of raises_

  absl::once_flag join_once_;
  std::thread thread_;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_ENGINE_H_
