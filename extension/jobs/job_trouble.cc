#include "extension/jobs/job_trouble.h"

#include <algorithm>
#include <utility>

#include "engine/runtime/trouble.h"

namespace lm {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(500);
constexpr absl::Duration kLongestPause = absl::Seconds(15);
constexpr int kAlone = 2;

}  // namespace

void JobTrouble::Answered() {
  ++answered_;
  last_ = absl::OkStatus();
}

bool JobTrouble::Met(RowTrouble* row, absl::Status status, absl::Time now) {
  const Trouble trouble = TroubleOf(status);
  const bool perhaps_own = trouble == Trouble::kServer || trouble == Trouble::kRefusal;
  if (row->answered >= 0 && answered_ > row->answered) ++row->alone;
  row->answered = answered_;
  if (perhaps_own && (row->alone >= kAlone || status.message() == row->before)) return false;
  if (!any()) {
    began_ = now;
    pause_ = kFirstPause;
    next_ = now + pause_;
    probed_ = false;
  }
  last_ = std::move(status);
  return true;
}

void JobTrouble::ProbeFailed(absl::Status status, absl::Time now) {
  if (!any()) return;  // a row was answered meanwhile
  probed_ = true;
  pause_ = std::min(2 * pause_, kLongestPause);
  next_ = now + pause_;
  if (TroubleOf(status) != Trouble::kNone) last_ = std::move(status);
}

absl::Status JobTrouble::Over(bool under_way, absl::Time now) const {
  if (!any() || under_way) return absl::OkStatus();
  const bool patient = now - began_ < patience_;
  switch (TroubleOf(last_)) {
    case Trouble::kAccount:
      return last_;
    case Trouble::kRefusal:
      return probed_ ? last_ : absl::OkStatus();
    case Trouble::kServer:
      return probed_ && !patient ? last_ : absl::OkStatus();
    case Trouble::kOutage:
    case Trouble::kNone:
      return patient ? absl::OkStatus() : last_;
  }
  return absl::OkStatus();
}

}  // namespace lm
