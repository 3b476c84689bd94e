#include "extension/batch_files/batch_rows.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr size_t kMostBytes = 16 << 20;                  // of rows that are read together
constexpr absl::Duration kRowLease = absl::Seconds(30);  // as lm_run() has it unless told otherwise

// By their numbers, and not by the index of states: a page after another, that would sort all rows
// for each.
constexpr char kOfRange[] =
    " FROM {db}.lm_job_rows NOT INDEXED WHERE job = ?1 AND number BETWEEN ?2 AND ?3 AND "
    "(state = 'waiting' OR state = 'failed' AND ?4) AND vanished IS NULL";

absl::StatusOr<Statement*> Prepared(const JobDatabase& database, Statement* statement,
                                    absl::string_view sql) {
  if (!statement->prepared()) {
    ASSIGN_OR_RETURN(*statement, Statement::Prepare(database.db(), database.Sql(sql)));
  }
  statement->Reset();
  return statement;
}

}  // namespace

absl::Status RecoverRows(FoundJob& job) {
  return job.database->Transact([&job] { return job.store->Recover(absl::Now(), kRowLease); });
}

absl::StatusOr<int64_t> BatchRows::Count(const BatchRange& range) {
  ASSIGN_OR_RETURN(
      Statement count,
      Statement::Prepare(database_.db(), database_.Sql(absl::StrCat("SELECT count(*)", kOfRange))));
  count.Bind(1, store_.job().name).Bind(2, range.first).Bind(3, range.last);
  RETURN_IF_ERROR(count.Bind(4, int64_t{range.failed}).Step().status());
  return count.Integer(0);
}

absl::StatusOr<std::vector<JobRow>> BatchRows::Read(const BatchRange& range, int64_t most) {
  ASSIGN_OR_RETURN(Statement * read, Prepared(database_, &read_,
                                              absl::StrCat("SELECT ", JobStore::kRowColumns,
                                                           kOfRange, " ORDER BY number LIMIT ?5")));
  read->Bind(1, store_.job().name).Bind(2, range.first).Bind(3, range.last);
  read->Bind(4, int64_t{range.failed}).Bind(5, most);
  std::vector<JobRow> rows;
  for (size_t bytes = 0; bytes < kMostBytes;) {
    ASSIGN_OR_RETURN(const bool row, read->Step());
    if (!row) break;
    ASSIGN_OR_RETURN(JobRow found, JobStore::RowOf(*read));
    bytes += found.bytes();
    rows.push_back(std::move(found));
  }
  read->Reset();
  return rows;
}

absl::StatusOr<std::optional<BatchRows::Found>> BatchRows::Find(int64_t number) {
  ASSIGN_OR_RETURN(Statement * find,
                   Prepared(database_, &find_,
                            "SELECT prompt, system, id, state FROM {db}.lm_job_rows "
                            "WHERE number = ? AND job = ?"));
  ASSIGN_OR_RETURN(const bool there, find->Bind(1, number).Bind(2, store_.job().name).Step());
  if (!there) return std::nullopt;
  Found found{.row = {number, find->CheckedText(0, "prompt"), find->CheckedText(1, "system")}};
  ASSIGN_OR_RETURN(found.id, find->Text(2));
  ASSIGN_OR_RETURN(found.state, find->Text(3));
  find->Reset();
  return found;
}

absl::StatusOr<JobStore::Outcome> BatchRows::Complete(int64_t number, JobAnswer answer) {
  ASSIGN_OR_RETURN(Statement * take,
                   Prepared(database_, &take_,
                            "UPDATE {db}.lm_job_rows SET state = 'running', worker = ?3, "
                            "lease = ?4, attempts = attempts + 1 "
                            "WHERE number = ?1 AND job = ?2 AND state IN ('waiting', 'failed')"));
  take->Bind(1, number).Bind(2, store_.job().name).Bind(3, store_.worker().name());
  RETURN_IF_ERROR(take->Bind(4, absl::ToUnixMillis(absl::Now() + kRowLease)).Run());
  return store_.Complete(number, std::move(answer));
}

}  // namespace lm
