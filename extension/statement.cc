#include "extension/statement.h"

#include "engine/base/status_macros.h"

namespace lm {

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
      return absl::UnavailableError(sqlite3_errmsg(db));
    case SQLITE_ERROR:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_TOOBIG:
    case SQLITE_RANGE:
      return absl::InvalidArgumentError(sqlite3_errmsg(db));
    default:
      return absl::InternalError(sqlite3_errmsg(db));
  }
}

absl::Status Execute(sqlite3* db, const char* sql) {
  return StatusOf(db, sqlite3_exec(db, sql, nullptr, nullptr, nullptr));
}

absl::StatusOr<Statement> Statement::Prepare(sqlite3* db, absl::string_view sql) {
  Statement statement;
  sqlite3_stmt* prepared = nullptr;
  const char* tail = nullptr;
  const int code =
      sqlite3_prepare_v2(db, sql.data(), static_cast<int>(sql.size()), &prepared, &tail);
  statement.statement_.reset(prepared);
  if (code != SQLITE_OK) return StatusOf(db, code);
  if (prepared == nullptr) return absl::InvalidArgumentError("there is no statement");
  statement.tail_ = std::string(sql.substr(tail - sql.data()));
  return statement;
}

Statement& Statement::Bind(int position, int64_t value) {
  sqlite3_bind_int64(get(), position, value);
  return *this;
}

Statement& Statement::Bind(int position, absl::string_view text) {
  // A null pointer would be NULL.
  const char* data = text.data() != nullptr ? text.data() : "";
  sqlite3_bind_text64(get(), position, data, text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  return *this;
}

Statement& Statement::Bind(int position, sqlite3_value* value) {
  sqlite3_bind_value(get(), position, value);
  return *this;
}

Statement& Statement::BindCell(int position, const Cell& cell) {
  if (const auto* integer = std::get_if<int64_t>(&cell)) return Bind(position, *integer);
  if (const auto* text = std::get_if<std::string>(&cell)) return Bind(position, *text);
  if (const auto* real = std::get_if<double>(&cell)) {
    sqlite3_bind_double(get(), position, *real);
    return *this;
  }
  return BindNull(position);
}

Statement& Statement::BindNull(int position) {
  sqlite3_bind_null(get(), position);
  return *this;
}

absl::StatusOr<bool> Statement::Step() {
  const int code = sqlite3_step(get());
  if (code == SQLITE_ROW) return true;
  absl::Status status = StatusOf(sqlite3_db_handle(get()), code);
  sqlite3_reset(get());
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

std::string Statement::Text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(get(), column));
  return text == nullptr ? "" : std::string(text, sqlite3_column_bytes(get(), column));
}

}  // namespace lm
