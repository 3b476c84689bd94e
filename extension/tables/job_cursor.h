// JobCursor: a table function that works on a job of lm_jobs, and gives a row for each step.
//
//   class RunCursor : public JobCursor<JobRun, JobProgress> {
//     absl::StatusOr<std::unique_ptr<JobRun>> Begin(const std::string& job,
//                                                   const TableArguments& args) override;
//     absl::Status Value(int column, sqlite3_context* context) override;   // of row()
//   };
#ifndef LM_EXTENSION_TABLES_JOB_CURSOR_H_
#define LM_EXTENSION_TABLES_JOB_CURSOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/status_macros.h"
#include "extension/binding/snapshot_table.h"
#include "extension/binding/table_function.h"

namespace lm {

// The first argument, the name of a job. An error under lm_explain, for which nothing is written.
absl::StatusOr<std::string> JobArgument(Connection& connection, const TableArguments& args);

// An error that a function which was not there met: it may have been in its own way.
absl::Status OnceMore(sqlite3* db, bool late, const absl::Status& status);

// Work::Advance() returns a StatusOr<optional<Row>>; nullopt is the end.
template <typename Work, typename Row>
class JobCursor : public TableCursor {
 public:
  using TableCursor::TableCursor;

  // Reads the other arguments, and begins.
  virtual absl::StatusOr<std::unique_ptr<Work>> Begin(const std::string& job,
                                                      const TableArguments& args) = 0;

  absl::Status Filter(const TableArguments& args) final {
    work_.reset();
    row_.reset();
    rowid_ = 0;
    ASSIGN_OR_RETURN(const std::string job, JobArgument(connection(), args));
    // Where temp has none of them yet, this is main's, which holds a read lock while it runs.
    ASSIGN_OR_RETURN(const bool late, CreateInTemp(connection()));
    absl::StatusOr<std::unique_ptr<Work>> work = Begin(job, args);
    RETURN_IF_ERROR(OnceMore(connection().db(), late, work.status()));
    work_ = *std::move(work);
    return Advance();
  }
  bool AtEnd() const final { return !row_.has_value(); }
  absl::Status Next() final {
    ++rowid_;
    return Advance();
  }
  int64_t rowid() const final { return rowid_; }

 protected:
  const Work& work() const { return *work_; }
  const Row& row() const { return *row_; }

 private:
  absl::Status Advance() {
    row_.reset();
    ASSIGN_OR_RETURN(row_, work_->Advance());
    if (!row_.has_value()) work_.reset();
    return absl::OkStatus();
  }

  std::unique_ptr<Work> work_;
  std::optional<Row> row_;
  int64_t rowid_ = 0;
};

}  // namespace lm

#endif  // LM_EXTENSION_TABLES_JOB_CURSOR_H_
