#include "engine/base/checkpoint.h"

#include <utility>

namespace lm {
namespace {

thread_local CheckpointScope* this_threads_scope = nullptr;

}  // namespace

CheckpointScope::CheckpointScope(std::function<bool()> question)
    : question_(std::move(question)),
      next_(std::chrono::steady_clock::now() + kCheckpointInterval) {
  if (this_threads_scope == nullptr) this_threads_scope = this;
}

CheckpointScope::~CheckpointScope() {
  if (this_threads_scope == this) this_threads_scope = nullptr;
}

bool CheckpointScope::Ask() {
  if (interrupted_) return true;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return false;
  interrupted_ = question_();
  next_ = now + kCheckpointInterval;
  return interrupted_;
}

bool Interrupted() { return this_threads_scope != nullptr && this_threads_scope->Ask(); }

absl::Status Checkpoint() {
  return Interrupted() ? absl::CancelledError("interrupted") : absl::OkStatus();
}

}  // namespace lm
