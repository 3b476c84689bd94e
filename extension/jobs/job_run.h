// JobRun: one run of a job: claim rows, generate, commit, and again, until the job is done.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<JobRun> run, JobRun::Begin(connection, "label", {}));
//   for (;;) {
//     ASSIGN_OR_RETURN(std::optional<JobProgress> progress, run->Advance());
//     if (!progress.has_value()) break;
//     Show(*progress);
//   }
//
// run_table.cc says what a job is and what is guaranteed of it.
#ifndef LM_EXTENSION_JOBS_JOB_RUN_H_
#define LM_EXTENSION_JOBS_JOB_RUN_H_

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/base/monotonic_time.h"
#include "engine/runtime/fork_guard.h"
#include "extension/batch/pending_answer.h"
#include "extension/connection/call_options.h"
#include "extension/jobs/found_job.h"
#include "extension/jobs/job_database.h"
#include "extension/jobs/job_store.h"
#include "extension/jobs/job_trouble.h"

namespace lm {

struct JobRunOptions {
  int64_t chunk = 128;  // most rows that are claimed and not committed
  int64_t max_errors = INT64_MAX;
  bool retry = false;
  bool refresh = false;                        // the query is asked again
  absl::Duration progress = absl::Seconds(1);  // at least between two reports
  absl::Duration lease = absl::Seconds(30);    // of a claim that is not renewed
  absl::Duration outage = absl::Seconds(60);   // of the model's servers, that is waited for
  // The run's budgets; where one is not given, what the job's options or the settings have.
  std::optional<int64_t> max_seconds = {};
  std::optional<int64_t> max_total_tokens = {};
  std::optional<double> max_cost = {};
  // Of the user's databases, the one that has the job; nullopt: the first that does.
  std::optional<std::string> database = {};
};

struct JobProgress {
  JobCounts counts;         // of the job
  JobChanges changes = {};  // of this run's refresh
  int64_t finished = 0;     // rows of the job, by whomever, since this run began
  int64_t cached = 0;       // of this run, without a generation
  int64_t tokens_out = 0;   // of this run
  absl::Duration elapsed = {};
  int64_t unchanged = 0;     // answers, where none of this run's has had the target change a row
  std::string stopped = {};  // which budget has ended the run before the job; empty: none
  std::string trouble = {};  // what the run waits for to be over; empty: nothing
};

// Not thread-safe; used while one statement runs. Destroying it commits what is answered and gives
// the other rows back, if no other writer is in the way; if one is, their claims run out.
class JobRun {
 public:
  // Plans the job, if this is its first run, as soon as its model is known. Errors: those of
  // JobDatabase and JobStore, and of the job's options. REQUIRES: the connection outlives it.
  static absl::StatusOr<std::unique_ptr<JobRun>> Begin(Connection& connection,
                                                       absl::string_view job,
                                                       const JobRunOptions& options);
  ~JobRun();

  const Generator& generator() const { return call_->generator(); }

  // Works until there is something to report; nullopt once the end has been. Aborted where more
  // rows have failed than max_errors, or the model that answers them is gone or will not go on;
  // what was answered is committed then.
  absl::StatusOr<std::optional<JobProgress>> Advance();

 private:
  struct Row {
    int64_t number;
    JobAsked asked;
    PendingAnswer answer;
    size_t bytes = 0;  // of its texts
    MonotonicTime submitted = {};
    RowTrouble trouble = {};
    bool heard = false;    // what its answer says of the model
    bool settled = false;  // that was the row's own, if it was any
    bool in_turn = false;  // it may be asked while there is trouble
  };
  // One that is to be asked again.
  struct Held {
    int64_t number;
    RowTrouble trouble;
  };

  JobRun(const JobRunOptions& options, FoundJob job, Connection& connection);

  // Advance(), whose error may be that memory was short for the run's own work.
  absl::StatusOr<std::optional<JobProgress>> Work();
  absl::Status ReadOptions();
  // Looks which model it is, and has the job its rows; where the servers are away that is trouble.
  absl::Status MeetModel();
  bool has_met() const { return question_.has_value(); }
  // The same where it has not, when it is time to look again; what there is to report.
  absl::StatusOr<std::optional<JobProgress>> AwaitModel();
  // The system prompt of rows without one.
  std::optional<std::string> SystemOfJob() const;
  // Has the job its rows, as its query gives them now or gave them first.
  absl::Status PlanRows();
  // Whether it is time to commit what has been answered, or to show that this run is alive.
  bool IsTimeToCommit(int64_t num_answered, MonotonicTime now) const;
  // Collects what has come, and submits what can be.
  int64_t CountAnswered();
  // What an answer of the model's says of it. False where the row is to be asked again.
  bool Hear(Row& row);
  // Asks rows that are held again, or where there is trouble yet the probe, or one behind it.
  absl::Status AskAgain();
  absl::Status AskProbe();
  // What the probe's answer says of the model, if it has come.
  void HearProbe();
  // Whether the model is at any row, or at the probe.
  bool IsUnderWay();
  // How many rows are to be claimed, of which `left` are not answered yet.
  int64_t Wanted(int64_t left) const;
  // And of how many bytes, at most.
  size_t WantedBytes() const;
  // Whether the row is to wait until another has an answer.
  bool IsHeldBack(const Row& row) const;
  // In one transaction, or several (JobStore::WantsCommit): answers that have come, and new claims,
  // or all others are given back. After the first, which has only claims, others that hold a lock
  // are waited for with patience.
  enum class Others { kStay, kGoBack, kGoBackUntried };
  absl::Status Commit(std::optional<absl::Duration> patience, Others others);
  // One of them; whether it was the last.
  absl::StatusOr<bool> CommitSome(std::optional<absl::Duration> patience, Others others);
  absl::StatusOr<JobAnswer> TakeAnswer(Row& row);
  void Submit(std::vector<JobRow> claimed);
  void Add(JobRow row, RowTrouble trouble = {});
  // Lets rows that are held be asked again, all or one.
  absl::Status Release(bool only_one);
  void Show(const JobCounts& counts);  // in lm_running
  const char* WaitsFor() const;        // likewise
  absl::StatusOr<JobProgress> Progress(MonotonicTime now);
  // Which budget ends the run now: time is over, or none of its rows is under way and nothing is
  // left for another. Empty: none.
  std::string BudgetsEnd(MonotonicTime now);
  // Commits what is answered and gives the other rows back: the run is over before the job is, and
  // the job's status says why, as the result's `stopped` does.
  absl::StatusOr<JobProgress> Stop(const std::string& why, Others others = Others::kGoBack);
  // The error of a run whose target takes no answer any more, after the same.
  absl::Status StopForTarget();
  // The error of a run that can do no more, for no fault of its rows, after the same.
  absl::Status StopUntried(const std::string& why);
  // The same where no model answers; OK where there is no need.
  absl::Status StopForTrouble();
  // The error of a run in which more rows have failed than max_errors, after the same.
  absl::Status StopForErrors();

  const JobRunOptions options_;
  const std::unique_ptr<JobDatabase> database_;
  const std::unique_ptr<JobStore> store_;
  Connection& connection_;
  sqlite3* const user_;
  const ForkGuard fork_guard_;
  std::shared_ptr<RunningWork> work_;  // for lm_running; may be null
  std::shared_ptr<const CallOptions> call_;
  std::shared_ptr<const ReadInParts> parts_;  // null: each row is one prompt
  std::optional<JobQuestion> question_;
  JobChanges changes_;
  int64_t max_errors_ = INT64_MAX;
  absl::Duration most_ = absl::InfiniteDuration();  // of the run

  std::list<Row> rows_;   // claimed by this run
  std::list<Held> held_;  // claimed, and to be asked again
  JobTrouble trouble_;
  std::optional<PendingAnswer> probe_;
  int64_t failed_ = 0;       // by this run
  int64_t last_failed_ = 0;  // of these, its number
  int64_t cached_ = 0;
  int64_t tokens_out_ = 0;
  int64_t finished_before_ = 0;          // of the job, when the run began
  int64_t num_collected_ = 0;            // answers that have come
  int64_t collected_when_refused_ = -1;  // when a budget was last in the way
  bool none_waits_ = false;              // that this run may claim
  bool has_claimed_ = false;             // any row
  MonotonicTime began_;
  MonotonicTime last_commit_ = MonotonicTime::InfinitePast();
  MonotonicTime last_report_;
  bool over_ = false;
};

}  // namespace lm

#endif  // LM_EXTENSION_JOBS_JOB_RUN_H_
