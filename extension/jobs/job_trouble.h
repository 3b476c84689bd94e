// JobTrouble: what a run of a job makes of answers that are missing because of the model or its
// server, and not because of what was asked (engine/runtime/trouble.h).
//
//   if (trouble.Met(&row.trouble, status, now)) hold the row, to ask it again
//   if (trouble.MayProbe(now)) ask something small that is none of the rows, and nothing else
//   if (trouble.TakeTurn()) ask one row, and nothing else
//   RETURN_IF_ERROR(trouble.Over(now, ...));               // patience is at its end
//
// A row that fails three times, while others are answered in between, fails for itself. (Twice
// would not do: the first answers may have been under way when the trouble began.) So does one that
// has failed with that error in an earlier run. Where nothing else is answered, the rows wait, and
// the probe is asked after ever longer pauses. Where that is answered, a refusal is the rows' own,
// as if others had been answered, and all are asked again; but a server that fails may be equal to
// the probe alone: one row is asked behind each probe, and fails for itself once patience is at its
// end. So are rows for which this process had no memory, which may have been too many together; but
// none of them fails for it. A model of this process that is lost ends the run at once, and so does
// a server that does not prove that it keeps to the job's constraint.
#ifndef LM_EXTENSION_JOBS_JOB_TROUBLE_H_
#define LM_EXTENSION_JOBS_JOB_TROUBLE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/base/monotonic_time.h"
#include "engine/runtime/trouble.h"

namespace lm {

// What a row has met.
struct RowTrouble {
  std::string before = {};  // the error with which it has failed in an earlier run
  int64_t answered = -1;    // rows of the run, when it last did; negative: it has not
  int64_t probes = 0;       // probes with an answer, at that time
  int alone = 0;            // how often others have been answered in between
  int probed = 0;           // and how often the probe, or others
  Trouble kind = Trouble::kNone;  // of which all this is
};

// Not thread-safe.
class JobTrouble {
 public:
  // `patience`: how long an outage is waited for.
  explicit JobTrouble(absl::Duration patience) : patience_(patience) {}

  // Whether answers are missing, and none has come since.
  bool any() const { return !last_.ok(); }
  // What is said of the last of them.
  const absl::Status& last() const { return last_; }

  // The model has answered a row, be it that it will not, which it was `sent` then. What was under
  // way when the trouble began says nothing: a server that is shut down still answers it.
  void Answered(MonotonicTime sent);
  // The row's answer is missing: true where it is to be asked again, false where it has failed.
  bool Met(RowTrouble* row, absl::Status status, MonotonicTime now);

  // Whether the probe may be asked now.
  bool MayProbe(MonotonicTime now) const { return any() && now >= next_; }
  // It has an answer, or none, be it that it could not be asked.
  void ProbeAnswered(MonotonicTime now);
  void ProbeFailed(absl::Status status, MonotonicTime now);
  // None of the rows that are there waits because of it.
  void Forget() { last_ = absl::OkStatus(); }
  // Whether a row may be asked behind it; once.
  bool TakeTurn() { return std::exchange(turn_, false); }

  // Why the run is to end; OK where it is not. `under_way`: whether answers are waited for.
  absl::Status Over(bool under_way, MonotonicTime now) const;

 private:
  // Of a server that fails, but is there.
  bool IsPatient(MonotonicTime now) const { return now - fails_since_ < patience_; }
  void Note(absl::Status status, MonotonicTime now);
  void Pause(MonotonicTime now);

  const absl::Duration patience_;
  int64_t answered_ = 0;
  int64_t probes_ = 0;  // answered
  absl::Status last_;  // OK: there is no trouble
  bool anew_ = true;   // the next begins behind an answered row
  Trouble kind_ = Trouble::kNone;  // of the last
  MonotonicTime began_;            // behind an answered row
  MonotonicTime since_;            // behind an answered row or probe
  MonotonicTime fails_since_;      // behind those, or an outage
  MonotonicTime next_;
  absl::Duration pause_;
  bool probed_ = false;  // in vain, and the last time
  bool turn_ = false;
};

}  // namespace lm

#endif  // LM_EXTENSION_JOBS_JOB_TROUBLE_H_
