// JobTrouble: what a run of a job makes of answers that are missing because of who was to give
// them, and not because of what was asked (engine/runtime/trouble.h).
//
//   if (trouble.Met(&row.trouble, status, now)) hold the row, to ask it again
//   if (trouble.MayProbe(now)) ask something small that is none of the rows, and nothing else
//   RETURN_IF_ERROR(trouble.Over(now, ...));               // patience is at its end
//
// A row that fails three times, while others, or the probe, are answered in between, fails for
// itself. (Twice would not do: the first answers may have been under way when the trouble began.)
// So does one that has failed with that error in an earlier run. Where nothing else is answered,
// the rows wait, and the probe is asked after ever longer pauses.
#ifndef LM_EXTENSION_JOBS_JOB_TROUBLE_H_
#define LM_EXTENSION_JOBS_JOB_TROUBLE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lm {

// What a row has met.
struct RowTrouble {
  std::string before = {};  // the error with which it has failed in an earlier run
  int64_t answered = -1;    // others of the run, when it last did; negative: it has not
  int alone = 0;            // how often others have been answered in between
};

// Not thread-safe.
class JobTrouble {
 public:
  // An outage is waited for so long.
  explicit JobTrouble(absl::Duration patience) : patience_(patience) {}

  // Whether answers are missing, and none has come since.
  bool any() const { return !last_.ok(); }
  // What is said of the last of them.
  const absl::Status& last() const { return last_; }

  // The model has answered a row or the probe, be it that it will not.
  void Answered();
  // The row's answer is missing: true where it is to be asked again, false where it has failed.
  bool Met(RowTrouble* row, absl::Status status, absl::Time now);

  // Whether the probe may be asked now.
  bool MayProbe(absl::Time now) const { return any() && now >= next_; }
  // It has no answer, be it that it could not be asked.
  void ProbeFailed(absl::Status status, absl::Time now);

  // Why the run is to end; OK where it is not. `under_way`: whether answers are waited for.
  absl::Status Over(bool under_way, absl::Time now) const;

 private:
  const absl::Duration patience_;
  int64_t answered_ = 0;
  absl::Status last_;  // OK: there is no trouble
  absl::Time began_;
  absl::Time next_;
  absl::Duration pause_;
  bool probed_ = false;  // in vain, since it began
};

}  // namespace lm

#endif  // LM_EXTENSION_JOBS_JOB_TROUBLE_H_
