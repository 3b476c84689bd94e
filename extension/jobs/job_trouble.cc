#include "extension/jobs/job_trouble.h"

#include <algorithm>
#include <utility>

#include "engine/runtime/trouble.h"

namespace lm {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(500);
constexpr absl::Duration kLongestPause = absl::Seconds(15);
// The job's last ones, of a server that has answered all the others: so many, or one for so many
// others.
constexpr int64_t kFewRows = 4;
constexpr int64_t kOthersOfOne = 4;
constexpr int kAlone = 2;

}  // namespace

void JobTrouble::Answered() {
  ++answered_;
  asking_ = false;
  rows_.clear();
}

bool JobTrouble::Met(int64_t number, RowTrouble* row, absl::Status status, absl::Time now) {
  const Trouble trouble = TroubleOf(status);
  const bool asked = std::exchange(asking_, false);
  const bool perhaps_own = trouble == Trouble::kServer || trouble == Trouble::kRefusal;
  if (row->answered >= 0 && answered_ > row->answered) ++row->alone;
  row->answered = answered_;
  if (perhaps_own && (row->alone >= kAlone || status.message() == row->before)) return false;
  if (!any()) {
    began_ = now;
    pause_ = kFirstPause;
    next_ = now + pause_;
    asked_ = 0;
  } else if (asked) {  // those that were under way with the first fail with it
    pause_ = std::min(2 * pause_, kLongestPause);
    next_ = now + pause_;
  }
  rows_.insert(number);
  last_ = std::move(status);
  return true;
}

void JobTrouble::Asked() {
  if (!any()) return;
  asking_ = true;
  ++asked_;
}

absl::Status JobTrouble::Over(bool under_way, absl::Time now) const {
  if (!any()) return absl::OkStatus();
  switch (TroubleOf(last_)) {
    case Trouble::kAccount:
      return under_way ? absl::OkStatus() : last_;
    case Trouble::kRefusal:
      return under_way || asked_ == 0 ? absl::OkStatus() : last_;
    case Trouble::kServer:
      return under_way || asked_ == 0 || now - began_ < patience_ ? absl::OkStatus() : last_;
    case Trouble::kOutage:
    case Trouble::kNone:
      return under_way || now - began_ < patience_ ? absl::OkStatus() : last_;
  }
  return absl::OkStatus();
}

bool JobTrouble::IsOfItsRows() const {
  const Trouble trouble = TroubleOf(last_);
  const int64_t most = answered_ > 0 ? std::max(kFewRows, answered_ / kOthersOfOne) : 1;
  return static_cast<int64_t>(rows_.size()) <= most &&
         (trouble == Trouble::kServer || trouble == Trouble::kRefusal);
}

}  // namespace lm
