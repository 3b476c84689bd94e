// Job: a row of lm_jobs. What a run does is what it has read of it, so it must know it again.
//
//   Statement::Prepare(db, absl::StrCat("SELECT ", kJobColumns, " FROM main.lm_jobs"))
//   ...
//   ASSIGN_OR_RETURN(Job job, JobOf(row));
//   ...
//   RETURN_IF_ERROR(CheckSameJob(job, now));
#ifndef LM_EXTENSION_JOBS_JOB_H_
#define LM_EXTENSION_JOBS_JOB_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "extension/host/statement.h"

namespace lm {

struct Job {
  std::string name;
  std::string query;
  std::optional<std::string> target;
  std::optional<std::string> system;
  std::optional<std::string> options;
  std::optional<std::string> model;  // that it was begun with
  std::optional<int64_t> total;      // its rows, once they are written down
};

// What a statement selects of lm_jobs, first, for JobOf().
inline constexpr char kJobColumns[] = "name, query, target, system, options, model, total";
inline constexpr int kNumJobColumns = 7;
absl::StatusOr<Job> JobOf(const Statement& row);

// That another job has its place by now.
absl::Status JobWasReplaced(const Job& job);
// The same where it has another query; an error, too, where it has another target, system prompt or
// options.
absl::Status CheckSameJob(const Job& opened, const Job& now);

}  // namespace lm

#endif  // LM_EXTENSION_JOBS_JOB_H_
