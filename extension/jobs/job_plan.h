// JobPlan: a job's rows as its query gives them: written down when the job first runs, and brought
// up to date when a run asks for it.
//
//   JobPlan plan(&database, &job);
//   RETURN_IF_ERROR(plan.Make("qwen", digest));                        // once for each job
//   ASSIGN_OR_RETURN(JobChanges changes, plan.Refresh("qwen", ...));   // as often as one likes
//
// The query is read to its end before anything is written, for it may read lm_job_rows, too: where
// the job has a connection of its own, to a temporary table and before other writers are kept
// waiting; of a database in memory, into memory.
#ifndef LM_EXTENSION_JOBS_JOB_PLAN_H_
#define LM_EXTENSION_JOBS_JOB_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/host/sqlite_value.h"
#include "extension/host/statement.h"
#include "extension/jobs/job.h"
#include "extension/jobs/job_database.h"
#include "extension/jobs/job_question.h"

namespace lm {

// What a refresh has found.
struct JobChanges {
  int64_t joined = 0;    // rows that the job had not
  int64_t changed = 0;   // answered ones whose prompt, system prompt, options or model are others
  int64_t vanished = 0;  // rows that the query gives no more
};

// Not thread-safe. Begins transactions itself.
class JobPlan {
 public:
  // REQUIRES: both outlive it.
  JobPlan(JobDatabase* database, const Job* job) : database_(*database), job_(*job) {}

  // InvalidArgument where it is not one SELECT of two or three columns.
  absl::StatusOr<Statement> PrepareQuery() const;

  // Writes the rows down, if that was not done yet. `model` is written down as well:
  // FailedPrecondition where the job was begun with another, or has answers of another file of it:
  // one with another `digest`, unless that is empty. An error, too, where the job is not the same
  // any more (CheckSameJob).
  absl::Status Make(absl::string_view model, absl::string_view digest);

  struct Refreshed {
    JobQuestion question;    // what is asked now
    std::string model;       // its name
    bool any_model = false;  // whether it may be another than the job was begun with
    // JobTarget::Transact.
    absl::FunctionRef<absl::Status(absl::FunctionRef<absl::Status()>)> transact;
    // Has the target take the answer that a row has kept while the query did not give it.
    absl::FunctionRef<absl::Status(int64_t number)> take_again;
  };
  // Asks the query again, in one transaction:
  //   a new row                           waits
  //   an answered one, asked otherwise    waits; its answer stays until there is another
  //   one that is not given any more      is marked as vanished, with all it has
  //   a vanished one that is given again  is as before
  // A row without a version (its answer is older than versions are) is judged by its texts.
  absl::StatusOr<JobChanges> Refresh(const Refreshed& now);

 private:
  struct Merge;
  // A row of the query: values of its own, for what is done with it may be done to the table that
  // the query reads.
  struct Given {
    OwnedValue id, prompt, system;
  };

  absl::StatusOr<Statement> Prepare(absl::string_view sql) const;
  absl::StatusOr<bool> IsPlanned(absl::string_view model, bool any_model) const;
  // FailedPrecondition where a job of `total` rows has none, but a name that is no job's has some.
  absl::Status CheckRows(int64_t total) const;
  // FailedPrecondition where rows have answers of a model's file with another digest.
  absl::Status CheckModelFile(absl::string_view model, absl::string_view digest) const;
  // Hands over the columns of each row of the query.
  absl::Status EachRow(absl::FunctionRef<absl::Status(int64_t number, Statement& row)> take) const;
  static absl::StatusOr<Given> GivenBy(const Statement& row);
  absl::Status ReadRows(std::vector<Given>* all) const;
  // By a statement that takes id, prompt and system.
  absl::Status Insert(Statement& insert, int64_t number, const Given& given) const;
  // Copies them to temp.lm_plan, which must be dropped.
  absl::Status Stage() const;
  absl::Status MergeAll(Merge& merge) const;
  absl::Status MergeRow(Merge& merge, int64_t place, const Given& given) const;
  absl::Status MarkVanished(Merge& merge) const;

  JobDatabase& database_;
  const Job& job_;
};

}  // namespace lm

#endif  // LM_EXTENSION_JOBS_JOB_PLAN_H_
