#include "extension/jobs/job_target.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/status_macros.h"
#include "extension/host/given_statement.h"

namespace lm {
namespace {

// Answers that may be offered once more for each that rolls them back: less than a commit costs.
constexpr int64_t kMostAgain = 16;

}  // namespace

// Only what changes rows: a job comes with the database file, and is no way to more than that.
absl::Status JobTarget::Prepare(const std::string& sql) {
  sql_ = sql;
  ASSIGN_OR_RETURN(statement_, PrepareGivenChange(database_.db(), sql_));
  RETURN_IF_ERROR(database_.CheckAllowed(sql_));
  for (int i = 1; i <= sqlite3_bind_parameter_count(statement_.get()); ++i) {
    const char* name = sqlite3_bind_parameter_name(statement_.get(), i);
    const absl::string_view known = name != nullptr ? name + 1 : "";
    if (known == "id" || known == "prompt" || known == "value" || known == "error") continue;
    return absl::InvalidArgumentError(absl::StrCat("has the parameter ",
                                                   name != nullptr ? name : "?",
                                                   "; :id, :prompt, :value and :error are known"));
  }
  return absl::OkStatus();
}

bool JobTarget::LeavesKeysBehind() const {
  int unresolved = 0, highest = 0;
  const int code = sqlite3_db_status(database_.db(), SQLITE_DBSTATUS_DEFERRED_FKS, &unresolved,
                                     &highest, /*resetFlg=*/0);
  return code == SQLITE_OK && unresolved != 0;
}

absl::Status JobTarget::Transact(absl::FunctionRef<absl::Status()> body,
                                 std::optional<absl::Duration> patience) {
  for (;;) {
    const size_t rolled_back = rolled_back_.size();
    const bool apart = apart_;
    absl::Status done = database_.Transact(
        [&]() -> absl::Status {
          offered_ = 0;
          wants_commit_ = false;
          RETURN_IF_ERROR(body());
          // A later answer may have brought the row that an earlier one refers to.
          if (apart_ || !statement_.prepared() || !LeavesKeysBehind()) return absl::OkStatus();
          apart_ = true;
          return absl::AbortedError("FOREIGN KEY constraint failed");
        },
        patience);
    const bool again = rolled_back_.size() != rolled_back || apart_ != apart;
    if (done.ok() || !again) {
      rolled_back_.clear();
      apart_ = false;
      return done;
    }
  }
}

absl::Status JobTarget::Run(int64_t number, const JobAnswer& answer) {
  if (!select_asked_.prepared()) {
    ASSIGN_OR_RETURN(
        select_asked_,
        Statement::Prepare(
            database_.db(),
            database_.Sql("SELECT id, prompt FROM {db}.lm_job_rows WHERE number = ?")));
  }
  select_asked_.Reset();
  ASSIGN_OR_RETURN(const bool there, select_asked_.Bind(1, number).Step());
  if (!there) return absl::InternalError("its row is gone");
  const absl::Status& status = answer.generation.status;
  const auto error = status.ok() ? std::nullopt : std::optional<std::string>(status.message());
  // The same name behind two marks (:id, @id) is two parameters.
  for (int i = 1; i <= sqlite3_bind_parameter_count(statement_.get()); ++i) {
    const absl::string_view name = sqlite3_bind_parameter_name(statement_.get(), i) + 1;
    const std::optional<std::string>& text = name == "value" ? answer.value : error;
    if (name == "id" || name == "prompt") {
      statement_.Bind(i, select_asked_.Value(name == "id" ? 0 : 1));
    } else if (text.has_value()) {
      statement_.Bind(i, *text);
    } else {
      statement_.BindNull(i);
    }
  }
  select_asked_.Reset();
  return statement_.Run();
}

// What has failed may have kept some of its rows (OR FAIL), and how many of them nobody tells:
// sqlite3_total_changes() leaves out those of a trigger that has failed. A savepoint takes 1 to 5
// us of the 40 that a row takes without a model; 85 more where the target is of FTS5, which writes
// what it has at each.
absl::Status JobTarget::RunWhole(int64_t number, const JobAnswer& answer) {
  sqlite3* db = database_.db();
  if (!release_.prepared()) {
    ASSIGN_OR_RETURN(savepoint_, Statement::Prepare(db, "SAVEPOINT lm_answer"));
    ASSIGN_OR_RETURN(release_, Statement::Prepare(db, "RELEASE lm_answer"));
  }
  RETURN_IF_ERROR(savepoint_.Run());
  absl::Status taken = Run(number, answer);
  if (sqlite3_get_autocommit(db) != 0) return taken;  // it has rolled all back
  if (taken.ok() && apart_ && LeavesKeysBehind()) {
    taken = absl::InvalidArgumentError("FOREIGN KEY constraint failed");
  }
  if (!taken.ok()) RETURN_IF_ERROR(Execute(db, "ROLLBACK TO lm_answer"));
  RETURN_IF_ERROR(release_.Run());
  return taken;
}

absl::Status JobTarget::Offer(int64_t number, const JobAnswer& answer, absl::Status* refused) {
  if (!statement_.prepared()) return absl::OkStatus();
  if (!broken_.ok()) {
    *refused = broken_;
    return absl::OkStatus();
  }
  ++offered_;
  if (const auto known = rolled_back_.find(number); known != rolled_back_.end()) {
    *refused = known->second;
    wants_commit_ = offered_ >= kMostAgain;
    return absl::OkStatus();
  }
  const int before = sqlite3_total_changes(database_.db());
  absl::Status applied = InWordsOf("the job's target:", RunWhole(number, answer));
  answers_taken_ += applied.ok();
  rows_changed_ += sqlite3_total_changes(database_.db()) != before;
  const bool of_row = absl::IsInvalidArgument(applied);
  if (!of_row && !absl::IsInternal(applied) && !absl::IsPermissionDenied(applied)) return applied;
  // One that rolled the transaction back has undone more than this row.
  if (sqlite3_get_autocommit(database_.db()) != 0) {
    if (of_row) rolled_back_.emplace(number, applied);
    return applied;
  }
  // What can no more be prepared, or fails so, takes no other row's answer either.
  if (!of_row || !PrepareGivenChange(database_.db(), sql_).ok()) broken_ = applied;
  *refused = std::move(applied);
  return absl::OkStatus();
}

}  // namespace lm
