#include "engine/base/checkpoint.h"

#include <utility>

#include "engine/base/thread_slot.h"

namespace lm {
namespace {

ThreadSlot<CheckpointScope> this_threads_scope;

}  // namespace

CheckpointScope::CheckpointScope(std::function<bool()> question)
    : question_(std::move(question)),
      next_(std::chrono::steady_clock::now() + kCheckpointInterval) {
  if (this_threads_scope.get() == nullptr) this_threads_scope.set(this);
}

CheckpointScope::~CheckpointScope() {
  if (this_threads_scope.get() == this) this_threads_scope.set(nullptr);
}

bool CheckpointScope::Ask() {
  if (interrupted_) return true;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return false;
  interrupted_ = question_();
  next_ = now + kCheckpointInterval;
  return interrupted_;
}

bool Interrupted() {
  CheckpointScope* scope = this_threads_scope.get();
  return scope != nullptr && scope->Ask();
}

absl::Status Checkpoint() {
  return Interrupted() ? absl::CancelledError("interrupted") : absl::OkStatus();
}

}  // namespace lm
