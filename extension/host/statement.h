// Statement: a prepared statement of ours. It looks at every result code of SQLite, so that a value
// that could not be bound, read or stored is an absl::Status and never a NULL.
//
//   ASSIGN_OR_RETURN(Statement count, Statement::Prepare(db, "SELECT count(*) FROM t WHERE x =
//   ?")); ASSIGN_OR_RETURN(bool row, count.Bind(1, "a").Step()); int64_t n = count.Integer(0);
#ifndef LM_EXTENSION_HOST_STATEMENT_H_
#define LM_EXTENSION_HOST_STATEMENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/host/sqlite_api.h"
#include "extension/host/sqlite_value.h"

namespace lm {

// What `code` of a call on `db` means for its caller: Cancelled for an interrupt, Unavailable for a
// lock that others hold, InvalidArgument where the statement or its values are wrong (a constraint,
// a type, a length, a name that is not known), PermissionDenied by an authorizer, ResourceExhausted
// for memory and room on the disk, else Internal. Its message is SQLite's.
absl::Status StatusOf(sqlite3* db, int code);

// Whether an error of a statement of ours has to be that of the user's statement around it, too,
// although that could go on without: an interrupt, which a progress handler says once; and what
// SQLite has rolled back the user's transaction for, as it does where a read fails.
bool EndsStatementAround(const absl::Status& status);

// Runs statements that take no values and give no rows.
absl::Status Execute(sqlite3* db, const char* sql);

// Not thread-safe; does not outlive its connection.
//
// A host may finalize all statements that sqlite3_next_stmt lists, before it closes a connection:
// one that a cursor of ours keeps, and then the one that the cursor belongs to. So a statement is
// finalized here only where SQLite still lists it; who does more than that at such an end asks
// IsGone() first.
class Statement {
 public:
  Statement() = default;
  // The first statement of `sql`. InvalidArgument where there is none. `flags` are those of
  // sqlite3_prepare_v3.
  static absl::StatusOr<Statement> Prepare(sqlite3* db, absl::string_view sql, unsigned flags = 0);

  bool prepared() const { return statement_ != nullptr; }
  // Whether the host has finalized it: it may only be destroyed. A look at the statements of the
  // connection, the newest first.
  bool IsGone() const { return prepared() && !statement_.get_deleter().Lists(get()); }
  sqlite3_stmt* get() const { return statement_.get(); }
  // What follows it in the text it was made of.
  absl::string_view tail() const { return tail_; }

  // Values stay bound until they are replaced; SQLite copies them. Positions count from 1; 0 is
  // ignored, as a parameter that the statement does not have. The first value that cannot be bound
  // (too long, no memory) is the error of the next Step, which does not run the statement.
  Statement& Bind(int position, int64_t value);
  Statement& Bind(int position, absl::string_view text);
  Statement& BindBlob(int position, absl::string_view bytes);
  Statement& Bind(int position, sqlite3_value* value);
  Statement& BindCell(int position, const Cell& cell);
  Statement& BindNull(int position);

  // True where there is a row. At the end, and after an error, the statement is reset. An error is
  // also one of the values bound before.
  absl::StatusOr<bool> Step();
  // Steps to the end.
  absl::Status Run();
  void Reset() { sqlite3_reset(get()); }

  // Of the row; columns count from 0. They are gone with the next step.
  bool IsNull(int column) const { return sqlite3_column_type(get(), column) == SQLITE_NULL; }
  int64_t Integer(int column) const { return sqlite3_column_int64(get(), column); }
  int type(int column) const { return sqlite3_column_type(get(), column); }
  // Empty for NULL. ResourceExhausted where there is no memory for it.
  absl::StatusOr<std::string> Text(int column) const;
  absl::StatusOr<std::string> Blob(int column) const;
  // As TextOf has it, with its errors.
  absl::StatusOr<std::optional<std::string>> CheckedText(int column, absl::string_view what) const;
  sqlite3_value* Value(int column) const { return sqlite3_column_value(get(), column); }

 private:
  Statement& Bound(int position, int code);

  // Knows the statement from another that has been given its address since, by its text and where
  // SQLite keeps that.
  struct Finalizer {
    sqlite3* db = nullptr;
    const char* sql = nullptr;
    std::string text;

    Finalizer();
    bool Lists(sqlite3_stmt* statement) const;
    void operator()(sqlite3_stmt* statement) const {
      if (Lists(statement)) sqlite3_finalize(statement);
    }
  };
  std::unique_ptr<sqlite3_stmt, Finalizer> statement_;
  std::string tail_;
  absl::Status not_bound_;  // the first error of a Bind since the last Step
};

// Before the text of a statement of ours that calls nothing and has nothing to do with the callers.
inline constexpr absl::string_view kOfNoCaller = "/* sqlite-lm: no caller */ ";

// The statements of a connection that are in the middle of a run and have a text, but for those
// kOfNoCaller. SQLite does not tell a function which of them calls it; where only one comes into
// question, that is the one.
// REQUIRES: called on the thread that uses the connection.
std::vector<sqlite3_stmt*> BusyStatements(sqlite3* db);
// But for those that we have prepared ourselves, which say so in their texts ("/* sqlite-lm: ").
std::vector<sqlite3_stmt*> BusyStatementsOfHost(sqlite3* db);

// How many instructions it had executed when sqlite3_step() last returned: the same throughout one
// call of that, in which all triggers of a statement fire. Of any thread, as long as it is there.
int StepOf(sqlite3_stmt* statement);

}  // namespace lm

#endif  // LM_EXTENSION_HOST_STATEMENT_H_
