#include "engine/runtime/weight_layout.h"

#include <utility>

#include "engine/backend/machine_ceilings.h"
#include "engine/base/monotonic_time.h"
#include "engine/runtime/model_loss.h"

namespace lm {

// A few milliseconds of it; whether weights are left.
absl::StatusOr<bool> WeightLayout::LayOutSome() {
  constexpr absl::Duration kAtOnce = absl::Milliseconds(5);
  absl::StatusOr<bool> more = model_->language_model().LayOutMore(kAtOnce);
  if (more.ok() && !*more && model_->draft() != nullptr) {
    more = model_->draft()->language_model().LayOutMore(kAtOnce);
  }
  return more;
}

absl::Status WeightLayout::Go(bool idle, absl::FunctionRef<bool()> interrupted,
                              absl::FunctionRef<void(bool)> laid_out) {
  constexpr absl::Duration kWithoutMemory = absl::Seconds(1);
  constexpr absl::Duration kWhileMeasured = absl::Milliseconds(20);
  if (!left_) return absl::OkStatus();
  const MonotonicTime start = MonotonicTime::Now();
  const MonotonicTime end = start + std::exchange(step_took_, absl::ZeroDuration());
  if (start < again_ || (!idle && start >= end)) return absl::OkStatus();
  while (left_) {
    if (MeasuresCeilings()) {  // and would measure less than the machine can do
      again_ = MonotonicTime::Now() + kWhileMeasured;
      return absl::OkStatus();
    }
    const absl::StatusOr<bool> more = LayOutSome();
    if (IsModelLoss(more.status())) {
      left_ = false;
      return more.status();
    }
    if (!more.ok()) {  // no memory: the model computes with the weights as they are
      again_ = MonotonicTime::Now() + kWithoutMemory;
      return absl::OkStatus();
    }
    left_ = *more;
    laid_out(*more);
    if (interrupted() || (!idle && MonotonicTime::Now() >= end)) return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace lm
