// JobWorker: a run that works on a job, as the rows it has claimed tell other processes.
//
//   const JobWorker me;
//   claim(rows, me.name());              // '4711.88210.4026531836.6a1c...#90b3....2'
//   if (JobWorker::IsGone(other)) ...    // may be claimed anew
#ifndef LM_EXTENSION_JOBS_JOB_WORKER_H_
#define LM_EXTENSION_JOBS_JOB_WORKER_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace lm {

// One run of a job. The name has the process (its number and the time it started, so that a number
// given out again is not taken for it), the machine as it was booted, and the run of this copy of
// the library.
class JobWorker {
 public:
  JobWorker();
  ~JobWorker();
  JobWorker(const JobWorker&) = delete;
  JobWorker& operator=(const JobWorker&) = delete;

  const std::string& name() const { return name_; }

  // Whether the run of that name is over for certain: its process has ended, or it was one of this
  // process. False where nothing is known of it: on another machine, in another container, in a
  // process that is not to be seen, or of another copy of the library.
  static bool IsGone(absl::string_view name);

 private:
  const int64_t number_;
  const std::string name_;
};

}  // namespace lm

#endif  // LM_EXTENSION_JOBS_JOB_WORKER_H_
