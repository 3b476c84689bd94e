// JobTrouble: what a run of a job makes of answers that are missing because of who was to give
// them, and not because of what was asked (engine/runtime/trouble.h).
//
//   if (trouble.Met(number, &row.trouble, status, now)) hold the row, to ask it again
//   if (trouble.any()) only one row at a time is asked, when MayAsk(now)
//   RETURN_IF_ERROR(trouble.Over(now, ...));               // patience is at its end
//
// A row that fails three times, while others are answered in between, fails for itself. (Twice
// would not do: the first answers may have been under way when the trouble began.) So does one that
// has failed with that error in an earlier run. Where no other is answered, the rows wait, and one
// of them is asked after ever longer pauses.
#ifndef LM_EXTENSION_JOBS_JOB_TROUBLE_H_
#define LM_EXTENSION_JOBS_JOB_TROUBLE_H_

#include <cstdint>
#include <set>
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
  bool any() const { return !rows_.empty(); }
  // What is said of the last of them.
  const absl::Status& last() const { return last_; }

  // The model has answered a row, be it that it will not.
  void Answered();
  // What a row was asked has ended without a word of the model.
  void Ended() { asking_ = false; }
  // The row's answer is missing: true where it is to be asked again, false where it has failed.
  bool Met(int64_t number, RowTrouble* row, absl::Status status, absl::Time now);

  // The row is another run's by now, or nobody's.
  void Forget(int64_t number) { rows_.erase(number); }

  // Whether a row may be asked now; Asked() says that one is.
  bool MayAsk(absl::Time now) const { return !any() || (!asking_ && now >= next_); }
  void Asked();

  // Why the run is to end; OK where it is not. `under_way`: whether answers are waited for.
  absl::Status Over(bool under_way, absl::Time now) const;
  // Whether what Over() says may be of the few rows that have met it, where no other waits.
  bool IsOfItsRows() const;

 private:
  const absl::Duration patience_;
  int64_t answered_ = 0;
  std::set<int64_t> rows_;  // their numbers
  absl::Status last_;
  absl::Time began_;
  absl::Time next_;
  absl::Duration pause_;
  bool asking_ = false;
  int asked_ = 0;  // since it began: of one of few rows another is asked first
};

}  // namespace lm

#endif  // LM_EXTENSION_JOBS_JOB_TROUBLE_H_
