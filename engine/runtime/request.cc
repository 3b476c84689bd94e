#include "engine/runtime/request.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/monotonic_time.h"

namespace lm {

absl::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContext:
      return "context";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

Request::Request(RequestSpec spec)
    : spec_(std::move(spec)),
      deadline_(MonotonicTime::InfiniteFuture().ToNanos()),
      priority_(spec_.options.priority) {}

bool Request::WaitFor(absl::Duration timeout) { return Wait(absl::Condition(&done_), timeout); }

bool Request::WaitForToken(absl::Duration timeout) {
  auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return done_ || taken_ < streamed_.size();
  };
  return Wait(absl::Condition(&ready), timeout);
}

bool Request::Wait(const absl::Condition& ready, absl::Duration timeout) {
  constexpr absl::Duration kTick = absl::Milliseconds(5);  // a deadline comes and goes meanwhile
  const MonotonicTime until = MonotonicTime::Now() + timeout;
  bool is_ready = false;
  for (bool over = false; !is_ready && !over;) {
    MonotonicTime next = until;
    if (spec_.options.timeout_ms > 0) {
      KeepDeadline();
      next = std::min(until, MonotonicTime::Now() + kTick);
    }
    absl::MutexLock lock(&mutex_);
    is_ready = news_.AwaitUntil(mutex_, ready, next);
    over = next == until;
  }
  if (is_ready && listener_ != nullptr) listener_->OnCollected(*this);
  return is_ready;
}

std::optional<StreamedToken> Request::TakeToken() {
  absl::MutexLock lock(&mutex_);
  if (taken_ == streamed_.size()) return std::nullopt;
  return std::move(streamed_[taken_++]);
}

void Request::PublishToken(StreamedToken token) {
  {
    absl::MutexLock lock(&mutex_);
    streamed_.push_back(std::move(token));
  }
  news_.SignalAll();
}

const Generation& Request::result() const {
  absl::MutexLock lock(&mutex_);
  assert(done_);
  return result_;
}

void Request::KeepDeadline() {
  if (listener_ != nullptr) listener_->OnWaiting(*this);
  if (MonotonicTime::Now() >= deadline()) Expire();
}

void Request::Raise() {
  if (priority_.exchange(Priority::kInteractive) == Priority::kInteractive) return;
  if (raises_ != nullptr) raises_->fetch_add(1, std::memory_order_release);
  if (listener_ != nullptr) listener_->OnRaised(*this);
}

void Request::Abandon(State state) {
  State wanted = State::kWanted;
  if (!state_.compare_exchange_strong(wanted, state)) return;
  if (cancellation_ != nullptr) cancellation_->OnCancel();
  if (listener_ != nullptr) listener_->OnAbandoned(*this);
}

absl::Status Request::AbandonedStatus() const {
  if (cancelled()) return absl::CancelledError("the generation was cancelled");
  return absl::DeadlineExceededError(
      absl::StrCat("the generation took longer than timeout_ms = ", spec_.options.timeout_ms));
}

void Request::Finish(Generation result) {
  {
    absl::MutexLock lock(&mutex_);
    assert(!done_);
    result_ = std::move(result);
    done_ = true;
  }
  news_.SignalAll();
  if (listener_ != nullptr) listener_->OnFinished(*this);
}

}  // namespace lm
