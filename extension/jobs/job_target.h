// JobTarget: the statement of a job that takes its answers.
//
//   JobTarget target(&database);
//   RETURN_IF_ERROR(target.Prepare("UPDATE notes SET label = :value WHERE id = :id"));
//   RETURN_IF_ERROR(target.Transact([&]() -> absl::Status {
//     absl::Status refused;
//     RETURN_IF_ERROR(target.Offer(number, answer, &refused));
//     ...
//   }));
#ifndef LM_EXTENSION_JOBS_JOB_TARGET_H_
#define LM_EXTENSION_JOBS_JOB_TARGET_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "extension/host/statement.h"
#include "extension/jobs/job_answer.h"
#include "extension/jobs/job_database.h"

namespace lm {

// Not thread-safe.
class JobTarget {
 public:
  // REQUIRES: *database outlives it.
  explicit JobTarget(JobDatabase* database) : database_(*database) {}

  // A job without one does not call it. InvalidArgument where `sql` is no statement that changes
  // rows, in words that go on after "the job's target".
  absl::Status Prepare(const std::string& sql);

  // JobDatabase::Transact(), and once more where the target has rolled all back, or has left a
  // deferred foreign key behind that finds no row: which answer that was is known by then, and it
  // is refused. REQUIRES: `body` may run several times. One that ends where WantsCommit(), and is
  // called again for the rest, does less twice.
  absl::Status Transact(absl::FunctionRef<absl::Status()> body,
                        std::optional<absl::Duration> patience = std::nullopt);

  // Has the target take the answer of a row of lm_job_rows. `*refused` says why it did not, where
  // that is the row's failure, or the target is broken(). REQUIRES: inside Transact().
  absl::Status Offer(int64_t number, const JobAnswer& answer, absl::Status* refused);

  // Whether what has been done is to be committed before another answer is offered: this one has
  // rolled back what was done before it, and the next that does would have it done once more.
  bool WantsCommit() const { return wants_commit_; }

  // Why it can take no answer at all, by what it said of the last one: a table or column of it is
  // gone. OK as far as is known.
  const absl::Status& broken() const { return broken_; }
  // How many answers it has taken without changing a row by any of them; 0 where one has.
  int64_t answers_without_change() const { return rows_changed_ == 0 ? answers_taken_ : 0; }

 private:
  absl::Status Run(int64_t number, const JobAnswer& answer);
  // The same; what has failed leaves nothing behind.
  absl::Status RunWhole(int64_t number, const JobAnswer& answer);
  bool LeavesKeysBehind() const;

  JobDatabase& database_;
  std::string sql_;
  Statement statement_;  // not prepared: there is none
  Statement select_asked_;  // the id and the prompt of a row
  Statement savepoint_, release_;

  int64_t answers_taken_ = 0;
  int64_t rows_changed_ = 0;  // by it, and by its triggers
  absl::Status broken_;
  std::map<int64_t, absl::Status> rolled_back_;  // by their numbers, what it said
  int64_t offered_ = 0;                          // answers, in this transaction
  bool wants_commit_ = false;
  bool apart_ = false;                           // each answer's keys are looked at
};

}  // namespace lm

#endif  // LM_EXTENSION_JOBS_JOB_TARGET_H_
