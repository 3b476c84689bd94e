// JobCounts: how far a job is.
#ifndef LM_EXTENSION_JOBS_JOB_COUNTS_H_
#define LM_EXTENSION_JOBS_JOB_COUNTS_H_

#include <cstdint>
#include <string>

namespace lm {

struct JobCounts {
  int64_t waiting = 0;
  int64_t submitted = 0;  // that wait, and are in a batch of a server (SubmittedRows)
  int64_t running = 0;
  int64_t done = 0;
  int64_t failed = 0;
  int64_t unknown = 0;   // rows whose state is none of these
  int64_t awaited = 0;   // of those that run, rows that the store's run is to wait for
  std::string stranger;  // a state that is none of these

  // Rows that the query gives no more are in none of these.
  int64_t vanished = 0;

  int64_t total() const { return waiting + submitted + running + done + failed + unknown; }
};

}  // namespace lm

#endif  // LM_EXTENSION_JOBS_JOB_COUNTS_H_
