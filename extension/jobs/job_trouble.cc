#include "extension/jobs/job_trouble.h"

#include <algorithm>
#include <utility>

namespace lm {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(500);
constexpr absl::Duration kLongestPause = absl::Seconds(15);
constexpr int kAlone = 2;

}  // namespace

void JobTrouble::Answered(MonotonicTime sent) {
  if (any() && sent < since_) return;
  ++answered_;
  last_ = absl::OkStatus();
  anew_ = true;
  turn_ = false;
}

bool JobTrouble::Met(RowTrouble* row, absl::Status status, MonotonicTime now) {
  const Trouble trouble = TroubleOf(status);
  if (row->kind != trouble) {
    row->alone = row->probed = 0;
  } else if (row->answered >= 0) {
    row->alone += answered_ > row->answered;
    row->probed += answered_ > row->answered || probes_ > row->probes;
  }
  row->answered = answered_;
  row->probes = probes_;
  row->kind = trouble;
  const bool is_refusal = trouble == Trouble::kRefusal;
  if (is_refusal || trouble == Trouble::kServer) {
    const bool probe_tells = is_refusal || (!anew_ && kind_ == trouble && !IsPatient(now));
    if (row->alone >= kAlone || status.message() == row->before) return false;
    if (probe_tells && row->probed >= kAlone) {
      pause_ = kFirstPause;  // for the next ones
      return false;
    }
  }
  if (!any()) since_ = now;
  if (std::exchange(anew_, false)) {
    kind_ = Trouble::kNone;
    began_ = now;
    pause_ = kFirstPause;
    next_ = now + pause_;
    probed_ = false;
  } else if (!any() || now >= next_) {
    Pause(now);
  }
  Note(std::move(status), now);
  return true;
}

void JobTrouble::Note(absl::Status status, MonotonicTime now) {
  const Trouble trouble = TroubleOf(status);
  if (trouble == Trouble::kServer && kind_ != trouble) fails_since_ = now;
  kind_ = trouble;
  last_ = std::move(status);
}

void JobTrouble::Pause(MonotonicTime now) {
  pause_ = std::min(2 * pause_, kLongestPause);
  next_ = now + pause_;
}

void JobTrouble::ProbeAnswered(MonotonicTime now) {
  ++probes_;
  if (!any()) return;  // a row was answered meanwhile
  probed_ = false;
  const Trouble trouble = TroubleOf(last_);
  if (trouble == Trouble::kMemory || (trouble == Trouble::kServer && IsPatient(now))) {
    turn_ = true;
    Pause(now);
  } else {
    last_ = absl::OkStatus();
  }
}

void JobTrouble::ProbeFailed(absl::Status status, MonotonicTime now) {
  if (!any()) return;  // a row was answered meanwhile
  probed_ = true;
  Pause(now);
  if (TroubleOf(status) != Trouble::kNone) Note(std::move(status), now);
}

absl::Status JobTrouble::Over(bool under_way, MonotonicTime now) const {
  if (!any() || under_way) return absl::OkStatus();
  const bool patient = now - began_ < patience_;
  switch (TroubleOf(last_)) {
    case Trouble::kAccount:
    case Trouble::kUnproven:
    case Trouble::kLoss:
      return last_;
    case Trouble::kRefusal:
      return probed_ ? last_ : absl::OkStatus();
    case Trouble::kServer:
      return probed_ && !patient ? last_ : absl::OkStatus();
    case Trouble::kOutage:
    case Trouble::kMemory:
    case Trouble::kNone:
      return patient ? absl::OkStatus() : last_;
  }
  return absl::OkStatus();
}

}  // namespace lm
