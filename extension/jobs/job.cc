#include "extension/jobs/job.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::StatusOr<Job> JobOf(const Statement& row) {
  Job job;
  ASSIGN_OR_RETURN(job.name, row.Text(0));
  ASSIGN_OR_RETURN(job.query, row.Text(1));
  std::optional<std::string>* const others[] = {&job.target, &job.system, &job.options, &job.model};
  int column = 2;
  for (std::optional<std::string>* text : others) {
    if (!row.IsNull(column)) {
      ASSIGN_OR_RETURN(*text, row.Text(column));
    }
    ++column;
  }
  if (!row.IsNull(column)) job.total = row.Integer(column);
  return job;
}

absl::Status JobWasReplaced(const Job& job) {
  return absl::NotFoundError(
      absl::StrCat("job '", job.name, "' was replaced by another while it ran"));
}

absl::Status CheckSameJob(const Job& opened, const Job& now) {
  if (now.query != opened.query) return JobWasReplaced(opened);
  if (now.target == opened.target && now.system == opened.system && now.options == opened.options) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("job '", opened.name,
                   "' was changed while it ran: its target, system or options are others now; "
                   "lm_run() goes on with them"));
}

}  // namespace lm
