#include "extension/jobs/submitted_rows.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/status_macros.h"
#include "extension/host/statement.h"
#include "extension/jobs/job_worker.h"

namespace lm {

absl::StatusOr<bool> SubmittedRows::HasTable() const {
  ASSIGN_OR_RETURN(
      Statement exists,
      Statement::Prepare(database_.db(), database_.Sql("SELECT 1 FROM {db}.sqlite_master WHERE "
                                                       "name = 'lm_job_batches'")));
  return exists.Step();
}

absl::Status SubmittedRows::Forget(absl::string_view job) {
  ranges_.clear();
  unsent_ = false;
  ASSIGN_OR_RETURN(const bool has_table, HasTable());
  if (!has_table) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      Statement forget,
      Statement::Prepare(database_.db(),
                         database_.Sql("DELETE FROM {db}.lm_job_batches WHERE job = ?")));
  return forget.Bind(1, job).Run();
}

absl::Status SubmittedRows::Read(absl::string_view job) {
  ranges_.clear();
  unsent_ = false;
  ASSIGN_OR_RETURN(const bool has_table, HasTable());
  if (!has_table) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      Statement batches,
      Statement::Prepare(
          database_.db(),
          database_.Sql("SELECT first, last, state, coalesce(worker, ''), coalesce(lease, 0) FROM "
                        "{db}.lm_job_batches WHERE job = ? AND state <> 'ended' ORDER BY first")));
  batches.Bind(1, job);
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, batches.Step());
    if (!row) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::string state, batches.Text(2));
    ASSIGN_OR_RETURN(const std::string worker, batches.Text(3));
    const bool sent = state == "submitted";
    // Of a batch that is being made the server has no more than a file, if that: where its maker is
    // gone, the process that goes on with it leaves out what has been answered.
    const bool has_maker = !worker.empty() && !JobWorker::IsGone(worker) &&
                           batches.Integer(4) >= absl::ToUnixMillis(absl::Now());
    if (state == "making" && !has_maker) continue;
    unsent_ |= !sent && !has_maker;
    ranges_.push_back({batches.Integer(0), batches.Integer(1)});
  }
}

bool SubmittedRows::Contains(int64_t number) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [number](const Range& range) {
    return range.first <= number && number <= range.last;
  });
}

std::vector<SubmittedRows::Range> SubmittedRows::Others(int64_t last) const {
  std::vector<Range> others;
  int64_t first = 0;
  for (const Range& range : ranges_) {
    if (range.first > first) others.push_back({first, std::min(range.first - 1, last)});
    first = std::max(first, range.last + 1);
  }
  if (first <= last) others.push_back({first, last});
  return others;
}

absl::StatusOr<int64_t> SubmittedRows::Count(absl::string_view job) {
  RETURN_IF_ERROR(Read(job));
  if (ranges_.empty()) return 0;
  ASSIGN_OR_RETURN(
      Statement count,
      Statement::Prepare(
          database_.db(),
          database_.Sql("SELECT (SELECT count(*) FROM {db}.lm_job_rows WHERE job = ?1 AND "
                        "state = 'waiting' AND number BETWEEN ?2 AND ?3) - (SELECT count(*) FROM "
                        "{db}.lm_job_rows WHERE job = ?1 AND state = 'waiting' AND "
                        "number BETWEEN ?2 AND ?3 AND vanished IS NOT NULL)")));
  int64_t submitted = 0, first = 0;
  for (const Range& range : ranges_) {  // ranges that were written by hand may overlap
    first = std::max(first, range.first);
    count.Bind(1, job).Bind(2, first).Bind(3, range.last);
    RETURN_IF_ERROR(count.Step().status());
    submitted += count.Integer(0);
    count.Reset();
    first = std::max(first, range.last + 1);
  }
  return submitted;
}

std::string SubmittedRows::Told(const JobCounts& counts) const {
  if (counts.submitted == 0) {
    return absl::StrCat("stopped: no batch is under way; ", counts.waiting, " of ", counts.total(),
                        " rows are left for lm_run() or another batch");
  }
  return absl::StrCat("submitted: ", counts.submitted, " of ", counts.total(),
                      " rows are in batches of a server (lm_batch_poll",
                      unsent_ ? "; of some it is not known whether the server has begun them, and "
                                "lm_batch_submit goes on with those"
                              : "",
                      "); ", counts.waiting, " others wait");
}

}  // namespace lm
