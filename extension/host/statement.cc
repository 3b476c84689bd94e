#include "extension/host/statement.h"

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"

namespace lm {

namespace {

// What the connection says of its last call, where that is the one that gave `code`. It may quote
// what stands in a damaged file.
std::string DatabaseMessage(sqlite3* db, int code) {
  const bool told = db != nullptr && (sqlite3_errcode(db) & 0xff) == (code & 0xff);
  return Printable(told ? sqlite3_errmsg(db) : sqlite3_errstr(code));
}

// Marks an error for which a transaction was rolled back.
constexpr absl::string_view kRolledBack = "sqlite-lm: rolled back";

// StatusOf(db, run()), where that runs a statement.
template <typename Run>
absl::Status StatusOfRun(sqlite3* db, int* code, Run run) {
  const bool in_transaction = sqlite3_get_autocommit(db) == 0;
  *code = run();
  absl::Status status = StatusOf(db, *code);
  if (!status.ok() && in_transaction && sqlite3_get_autocommit(db) != 0) {
    status.SetPayload(kRolledBack, absl::Cord());
  }
  return status;
}

}  // namespace

bool EndsStatementAround(const absl::Status& status) {
  return absl::IsCancelled(status) || status.GetPayload(kRolledBack).has_value();
}

absl::Status StatusOf(sqlite3* db, int code) {
  switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
      return absl::OkStatus();
    case SQLITE_INTERRUPT:
      return absl::CancelledError("interrupted");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(DatabaseMessage(db, code));
    case SQLITE_NOMEM:
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(DatabaseMessage(db, code));
    case SQLITE_AUTH:
      return absl::PermissionDeniedError(DatabaseMessage(db, code));
    case SQLITE_ERROR:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_TOOBIG:
    case SQLITE_RANGE:
      return absl::InvalidArgumentError(DatabaseMessage(db, code));
    default:
      return absl::InternalError(DatabaseMessage(db, code));
  }
}

absl::Status Execute(sqlite3* db, const char* sql) {
  int code = SQLITE_OK;
  return StatusOfRun(db, &code, [&] { return sqlite3_exec(db, sql, nullptr, nullptr, nullptr); });
}

Statement::Finalizer::Finalizer() = default;

bool Statement::Finalizer::Lists(sqlite3_stmt* statement) const {
  sqlite3_stmt* listed = sqlite3_next_stmt(db, nullptr);
  // The statement that keeps ours is there at least, unless the connection waits to be closed
  // (sqlite3_close_v2), and this SQLite lists nothing of that to anybody (SQLITE_ENABLE_API_ARMOR).
  if (listed == nullptr) return true;
  while (listed != nullptr && listed != statement) listed = sqlite3_next_stmt(db, listed);
  return listed != nullptr && sqlite3_sql(listed) == sql && text == sql;
}

absl::StatusOr<Statement> Statement::Prepare(sqlite3* db, absl::string_view sql, unsigned flags) {
  Statement statement;
  // Ready before there is a statement to finalize.
  Finalizer& finalizer = statement.statement_.get_deleter();
  finalizer.db = db;
  finalizer.text = std::string(sql);
  sqlite3_stmt* prepared = nullptr;
  const char* tail = nullptr;
  const int code =
      sqlite3_prepare_v3(db, sql.data(), static_cast<int>(sql.size()), flags, &prepared, &tail);
  if (prepared != nullptr) {
    finalizer.sql = sqlite3_sql(prepared);
    finalizer.text.resize(std::strlen(finalizer.sql));
  }
  statement.statement_.reset(prepared);
  if (code != SQLITE_OK) return StatusOf(db, code);
  if (prepared == nullptr) return absl::InvalidArgumentError("there is no statement");
  statement.tail_ = std::string(sql.substr(tail - sql.data()));
  return statement;
}

Statement& Statement::Bound(int position, int code) {
  if (code == SQLITE_OK || position == 0 || !not_bound_.ok()) return *this;
  not_bound_ = StatusOf(sqlite3_db_handle(get()), code);
  return *this;
}

Statement& Statement::Bind(int position, int64_t value) {
  return Bound(position, sqlite3_bind_int64(get(), position, value));
}

Statement& Statement::Bind(int position, absl::string_view text) {
  // A null pointer would be NULL.
  const char* data = text.data() != nullptr ? text.data() : "";
  return Bound(position, sqlite3_bind_text64(get(), position, data, text.size(), SQLITE_TRANSIENT,
                                             SQLITE_UTF8));
}

Statement& Statement::BindBlob(int position, absl::string_view bytes) {
  const char* data = bytes.data() != nullptr ? bytes.data() : "";
  return Bound(position,
               sqlite3_bind_blob64(get(), position, data, bytes.size(), SQLITE_TRANSIENT));
}

Statement& Statement::Bind(int position, sqlite3_value* value) {
  return Bound(position, sqlite3_bind_value(get(), position, value));
}

Statement& Statement::BindCell(int position, const Cell& cell) {
  if (const auto* integer = std::get_if<int64_t>(&cell)) return Bind(position, *integer);
  if (const auto* text = std::get_if<std::string>(&cell)) return Bind(position, *text);
  if (const auto* json = std::get_if<JsonText>(&cell)) return Bind(position, json->text);
  if (const auto* real = std::get_if<double>(&cell)) {
    return Bound(position, sqlite3_bind_double(get(), position, *real));
  }
  return BindNull(position);
}

Statement& Statement::BindNull(int position) {
  return Bound(position, sqlite3_bind_null(get(), position));
}

absl::StatusOr<bool> Statement::Step() {
  if (!not_bound_.ok()) {
    Reset();
    return std::exchange(not_bound_, absl::OkStatus());
  }
  int code = SQLITE_OK;
  absl::Status status =
      StatusOfRun(sqlite3_db_handle(get()), &code, [this] { return sqlite3_step(get()); });
  if (code == SQLITE_ROW) return true;
  Reset();
  if (!status.ok()) return status;
  return false;
}

absl::Status Statement::Run() {
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, Step());
    if (!row) return absl::OkStatus();
  }
}

absl::StatusOr<std::optional<std::string>> Statement::CheckedText(int column,
                                                                  absl::string_view what) const {
  // SQLite lets only a copy be read as a value.
  OwnedValue copy(sqlite3_value_dup(Value(column)));
  if (copy == nullptr) return absl::ResourceExhaustedError("out of memory");
  return TextOf(copy.get(), what);
}

absl::StatusOr<std::string> Statement::Text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(get(), column));
  if (text != nullptr) return std::string(text, sqlite3_column_bytes(get(), column));
  if (IsNull(column)) return "";
  return absl::ResourceExhaustedError("out of memory");
}

absl::StatusOr<std::string> Statement::Blob(int column) const {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(get(), column));
  if (bytes != nullptr) return std::string(bytes, sqlite3_column_bytes(get(), column));
  // Zero bytes are a null pointer as well.
  if (sqlite3_errcode(sqlite3_db_handle(get())) != SQLITE_NOMEM) return "";
  return absl::ResourceExhaustedError("out of memory");
}

std::vector<sqlite3_stmt*> BusyStatements(sqlite3* db) {
  std::vector<sqlite3_stmt*> busy;
  for (sqlite3_stmt* s = sqlite3_next_stmt(db, nullptr); s != nullptr;
       s = sqlite3_next_stmt(db, s)) {
    if (sqlite3_stmt_busy(s) == 0) continue;
    const char* sql = sqlite3_sql(s);
    if (sql != nullptr && !absl::StartsWith(sql, kOfNoCaller)) busy.push_back(s);
  }
  return busy;
}

std::vector<sqlite3_stmt*> BusyStatementsOfHost(sqlite3* db) {
  std::vector<sqlite3_stmt*> busy = BusyStatements(db);
  std::erase_if(
      busy, [](sqlite3_stmt* s) { return absl::StrContains(sqlite3_sql(s), "/* sqlite-lm: "); });
  return busy;
}

int StepOf(sqlite3_stmt* statement) {
  return sqlite3_stmt_status(statement, SQLITE_STMTSTATUS_VM_STEP, 0);
}

}  // namespace lm
