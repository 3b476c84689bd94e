// How requests end: with an answer, with an error, with the model's loss, or for want of memory.
#include <algorithm>
#include <utility>

#include "engine/base/monotonic_time.h"
#include "engine/base/out_of_memory.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/model_loss.h"
#include "engine/runtime/trouble.h"

namespace lm {

// Ends a running sequence if `end` is an error, or the end of its answer.
void Engine::EndSequence(Sequence* sequence, const absl::StatusOr<std::optional<FinishReason>>& end,
                         MonotonicTime now) {
  if (behind_ != nullptr && (!end.ok() || end->has_value())) {
    std::erase_if(behind_->entries,
                  [sequence](const StepEntry& e) { return e.sequence == sequence; });
  }
  if (!end.ok()) {
    Generation error = sequence->TakeError(end.status(), now);
    Finish(scheduler_->Finish(sequence, /*keep=*/false), std::move(error));
  } else if (end->has_value()) {
    Generation result = sequence->TakeResult(**end, now);
    if (result.status.ok() && sequence->embedding()) {
      absl::StatusOr<std::vector<float>> made =
          model_->language_model().ApplyHead(sequence->request().spec().ranks, result.embedding);
      if (made.ok()) {
        result.embedding = *std::move(made);
      } else {
        result = sequence->TakeError(made.status(), now);
      }
    }
    Finish(scheduler_->Finish(sequence, /*keep=*/true), std::move(result));
  }
}

void Engine::Fail(const StepPlan& plan, const absl::Status& status) {
  if (IsModelLoss(status)) {
    LoseModel(status);
  } else if (absl::IsResourceExhausted(status)) {
    FailBatch(plan, WithTrouble(status, Trouble::kMemory));
  } else {
    FailBatch(plan, status);
  }
}

// A step of the plan failed, or was cut short because all of its requests were abandoned.
void Engine::FailBatch(const StepPlan& plan, const absl::Status& status) {
  const MonotonicTime now = MonotonicTime::Now();
  // Sequences without tokens in this step may go on later from copies that it has not made.
  if (std::exchange(ops_failed_, false)) {
    for (std::unique_ptr<Sequence>& sequence : scheduler_->TakeRunning()) {
      Generation error = sequence->TakeError(status, now);
      Finish(std::move(sequence), std::move(error));
    }
    return;
  }
  const bool abandoned =
      std::all_of(plan.entries.begin(), plan.entries.end(),
                  [](const StepEntry& e) { return e.sequence->request().abandoned(); });
  if (abandoned || cancellation_->stopped()) {  // the next step, or the end of Run, drops them
    look_for_abandoned_ = true;  // cancellation_ may not have counted their cancelling yet
    return;
  }
  for (const StepEntry& entry : plan.entries) {
    Generation error = entry.sequence->TakeError(status, now);
    Finish(scheduler_->Finish(entry.sequence, /*keep=*/false), std::move(error));
  }
}

void Engine::FailAll(const absl::Status& status) {
  const MonotonicTime now = MonotonicTime::Now();
  for (auto& sequence : scheduler_->TakeIf([](const Sequence&) { return true; })) {
    Generation error = sequence->TakeError(status, now);
    Finish(std::move(sequence), std::move(error));
  }
}

// The model is lost. The next use of its file loads it anew (generator_registry.h).
void Engine::LoseModel(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (accepting_.ok()) {
      accepting_ = WithTrouble(absl::UnavailableError(status.message()), Trouble::kLoss);
    }
  }
  FailAll(WithTrouble(status, Trouble::kLoss));
}

void Engine::Finish(std::unique_ptr<Sequence> sequence, Generation result) {
  const bool answered = result.status.ok() && !sequence->scoring() && !sequence->embedding();
  if (answered) speculator_->Learn(*sequence);
  ended_.push_back({std::move(sequence), std::move(result)});
}

// Delivers the results, after they are counted: a waiting thread may look at the counts at once.
void Engine::Deliver() {
  ReportQueue();
  {
    absl::MutexLock lock(&mutex_);
    counts_.AddEnded(ended_);
  }
  for (EndedSequence& ended : ended_) ended.sequence->Deliver(std::move(ended.result));
  ended_.clear();
}

// Ends all sequences, and the questions about the cache, with an error; the cache goes with them.
// Allocates nothing: the destructor of a sequence finishes its request.
void Engine::DropScheduled() noexcept {
  {
    absl::MutexLock lock(&mutex_);
    int64_t lost = static_cast<int64_t>(ended_.size());
    if (scheduler_ != nullptr) lost += scheduler_->num_running() + scheduler_->num_waiting();
    counts_.AddLost(lost);
    num_waiting_ = 0;
  }
  ended_.clear();
  stored_.DrainLoads();  // into blocks of the scheduler's sequences
  scheduler_ = nullptr;
  for (;;) {
    std::shared_ptr<CacheInspection> inspection;
    {
      absl::MutexLock lock(&mutex_);
      if (inspections_.empty()) return;
      inspection = std::move(inspections_.front());
      inspections_.pop_front();
    }
    inspection->Finish(OutOfMemory());
  }
}

// Ends all requests that have not been taken yet, with the same error.
void Engine::DropQueued() noexcept {
  for (;;) {
    std::shared_ptr<Request> request;
    {
      absl::MutexLock lock(&mutex_);
      if (incoming_.empty()) return;
      request = std::move(incoming_.front());
      incoming_.pop_front();
      counts_.AddLost(1);
    }
    Generation lost;
    lost.status = OutOfMemory();
    request->Finish(std::move(lost));
  }
}

// An allocation failed somewhere. All sequences fail, and the cache begins again with nothing.
// Requests that have come meanwhile are taken by the next turn. Where that turn fails too, or there
// is no memory for a new scheduler, they do not wait until there is some: they fail until then.
void Engine::Recover() noexcept {
  DropScheduled();
  for (bool again = std::exchange(recovered_, true);; again = true) {
    if (again) DropQueued();
    try {
      speculator_ = MakeSpeculator();
      scheduler_ = MakeScheduler();
      scheduler_->DistrustBlocks();
      ops_failed_ = false;  // no sequence runs
      ReportQueue();
      return;
    } catch (...) {
      scheduler_ = nullptr;
    }
    absl::MutexLock lock(&mutex_);
    auto wanted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || !incoming_.empty() || !inspections_.empty();
    };
    news_.AwaitFor(mutex_, absl::Condition(&wanted), absl::Milliseconds(10));
    if (stopping_) return;
  }
}

}  // namespace lm
