// JobStore: a job as its database holds it, in the tables lm_jobs and lm_job_rows.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<JobStore> store, JobStore::Open(database, "label"));
//   RETURN_IF_ERROR(store->Prepare());
//   RETURN_IF_ERROR(store->Plan(model));                               // once for each job
//   store->Transact([&] {
//     RETURN_IF_ERROR(store->CheckThere());                            // a job may go, too
//     store->Complete(row, answer); ...                                // what has been answered
//     return store->Claim(64, lease, &rows);                           // what is to be done next
//   });
//
// Every row of the job is there from the beginning, with its prompt:
//
//   waiting -> running -> done        by Claim and Complete
//                      -> failed      and back to waiting by Retry
//                      -> waiting     by Release, or by Recover where its worker is gone; with its
//                                     answer by Complete, where the target takes none at all
//
// A store works on the rows that were there when it was made, on each once: what a trigger or
// another program adds, or lets wait again, is for the next run.
#ifndef LM_EXTENSION_JOBS_JOB_STORE_H_
#define LM_EXTENSION_JOBS_JOB_STORE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "extension/host/statement.h"
#include "extension/jobs/job.h"
#include "extension/jobs/job_answer.h"
#include "extension/jobs/job_counts.h"
#include "extension/jobs/job_database.h"
#include "extension/jobs/job_plan.h"
#include "extension/jobs/job_question.h"
#include "extension/jobs/job_target.h"
#include "extension/jobs/job_worker.h"
#include "extension/jobs/submitted_rows.h"

namespace lm {

// One worker's view of one job. Methods are to be called inside JobDatabase::Transact, those that
// write answers down inside the store's own, unless they say that they begin a transaction
// themselves. Not thread-safe.
class JobStore {
 public:
  // NotFound, with the names of all jobs, where there is no such job. REQUIRES: *database outlives
  // it.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(JobDatabase* database,
                                                        absl::string_view name);

  const Job& job() const { return job_; }
  const JobWorker& worker() const { return worker_; }

  // Looks at the job's target, its system prompt, and at its query where that is still to be asked,
  // or `asks_again`: InvalidArgument where one of them is not what it has to be, PermissionDenied
  // where the user's connection may not do what it does.
  absl::Status Prepare(bool asks_again = false);

  // Reads the query and writes down its rows, if that was not done yet. Other writers are kept
  // waiting only while the rows are copied. `model` is written down as well: FailedPrecondition
  // where the job was begun with another, or with another file of it, which the `digest` tells.
  // Begins a transaction.
  absl::Status Plan(absl::string_view model, absl::string_view digest = "");
  // Reads the query again (JobPlan::Refresh), and has the target take the kept answers of rows that
  // were gone meanwhile. A job whose options name the model may have another than it was begun
  // with. Begins a transaction. REQUIRES: Prepare() has looked at the query.
  absl::StatusOr<JobChanges> Refresh(const JobQuestion& question, const std::string& model,
                                     bool any_model);

  // JobTarget::Transact(), which may run `body` several times, and is to be called again for the
  // rest of the answers where WantsCommit().
  absl::Status Transact(absl::FunctionRef<absl::Status()> body,
                        std::optional<absl::Duration> patience = std::nullopt) {
    return target_.Transact(body, patience);
  }

  bool WantsCommit() const { return target_.WantsCommit(); }

  // NotFound where the job was deleted, or replaced by another, since it was opened, be it by one
  // of the same words whose query was asked anew; FailedPrecondition where its target, system
  // prompt or options were changed. A job that was renamed is followed where this worker has rows
  // of it, and NotFound otherwise.
  absl::Status CheckThere();
  // Gives this worker up to `most` waiting rows, or fewer where their texts have `bytes` by then,
  // and renews its claims. Rows come in the query's order, kMostOrdered at a time, and among these
  // in the order of their texts, so that what these begin with alike is computed once.
  absl::Status Claim(int64_t most, size_t bytes, absl::Time lease, std::vector<JobRow>* rows);
  // Writes down an answer and lets the target take it, unless the row has vanished meanwhile; an
  // answer that the table or the target refuses is a failure. kLost: the row is another worker's by
  // now, and nothing was written. kKept: the target is broken(); the row waits, with its answer.
  enum class Outcome { kDone, kFailed, kLost, kKept };
  absl::StatusOr<Outcome> Complete(int64_t number, JobAnswer answer);
  // Why the target can take no answer at all; OK as far as is known.
  const absl::Status& broken() const { return target_.broken(); }
  // Once Complete has been committed: this store does not claim the row again.
  void SetAside(int64_t number) { answered_.insert(number); }
  // A row that this worker has claimed, once more; nullopt where it is not its any more. Needs no
  // transaction.
  absl::StatusOr<std::optional<JobRow>> Claimed(int64_t number);
  // A row that has been answered, and is short among them; nullopt where there is none. Needs no
  // transaction.
  absl::StatusOr<std::optional<JobRow>> AnyAnswered();
  // Gives back what this worker has claimed; with `untried` as if it never had.
  absl::Status Release(bool untried = false);
  // Gives back what workers have claimed that are gone, or did not renew it in time: by their own
  // clock, or for as long as a `lease` has by this process's. After a long wait for a lock, for
  // which they may have waited as well, only what those have that are gone.
  absl::Status Recover(absl::Time now, absl::Duration lease);
  // Writes down, as the job's status, how many rows are in batches of a server, that rows wait and
  // are in none, or that none is left. Begins a transaction.
  absl::Status TellSubmitted();
  // Lets failed rows wait again, but those that have vanished or are in a batch; the job has then
  // not ended. They keep the answers that the target has refused.
  absl::Status Retry();
  // Writes down how a run ended: with no row left, where `over`, and else why. With `anew` only
  // where the job had not come to an end before.
  absl::Status End(bool over, absl::string_view status, bool anew = false);
  // The same where the job has its rows, and none of them is left.
  absl::Status EndIfOver(bool anew);
  // Writes down the end of a run that has found no more to do: that none is left, or how many are,
  // and whose. Begins a transaction.
  absl::Status Conclude(bool anew);

  // Whether the host has finalized the statements of a store that has claimed rows, on its own
  // connection (Statement::IsGone): nothing can be written any more.
  bool IsGone() const { return claim_.IsGone(); }

  // How many answers the target has taken without changing a row by any of them; 0 where one has.
  int64_t answers_without_change() const { return target_.answers_without_change(); }

  // These two need no transaction.
  absl::StatusOr<JobCounts> Counts();
  // "id 7: ...", with the error of a row that has failed; empty where it has not.
  absl::StatusOr<std::string> FailureOf(int64_t number);

  // What a statement selects of lm_job_rows for RowOf().
  static constexpr char kRowColumns[] =
      "number, prompt, system, CASE WHEN error IS NOT NULL AND finish IN ('stop', 'length', "
      "'context') THEN value END, finish, tokens_in, tokens_cached, tokens_out, prompt_version, "
      "model, coalesce(error, '')";
  static absl::StatusOr<JobRow> RowOf(const Statement& row);

 private:
  explicit JobStore(JobDatabase* database)
      : database_(*database), target_(database), submitted_(database) {}

  static constexpr size_t kMostOrdered = 4096;
  static constexpr size_t kMostOrderedBytes = 16 << 20;  // of prompts

  absl::Status Load(absl::string_view name);
  absl::Status PrepareStatements(bool asks_query);
  absl::Status CheckTexts();
  absl::Status OrderWaiting();
  // The same status, with why a table, function or collation that the user's connection has is not
  // there.
  absl::Status Reasoned(absl::Status status) const;
  // Learns when the rows of the job were written down.
  absl::Status SetBegun();
  absl::Status FollowName();
  absl::Status WriteAnswer(int64_t number, const JobAnswer& answer, Outcome outcome);
  // Has the target take the answer of a row that is done.
  absl::Status TakeAgain(int64_t number);
  absl::StatusOr<Statement> Make(absl::string_view sql);
  absl::StatusOr<Statement*> Prepared(Statement* statement, absl::string_view sql);

  JobDatabase& database_;
  JobWorker worker_;
  Job job_;
  bool begun_ = false;                // it has its rows
  std::optional<std::string> began_;  // lm_jobs.began then, where that is known
  JobTarget target_;
  Statement there_, select_waiting_, select_row_, claim_, renew_, select_mine_, select_claimed_,
      complete_, select_left_, counts_;

  SubmittedRows submitted_;
  std::vector<int64_t> ordered_;          // waiting when it was read; the next to claim at the end
  std::optional<int64_t> last_;           // the number of the last row that this store works on
  std::unordered_set<int64_t> answered_;  // numbers of rows that it is done with
  // The claims of others as they were last seen to change.
  struct OthersClaim {
    int64_t lease = 0;
    std::chrono::steady_clock::time_point since;
  };
  std::map<std::string, OthersClaim> others_;
};

}  // namespace lm

#endif  // LM_EXTENSION_JOBS_JOB_STORE_H_
