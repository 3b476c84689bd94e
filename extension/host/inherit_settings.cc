#include "extension/host/inherit_settings.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/host/sql_tokens.h"
#include "extension/host/statement.h"

namespace lm {
namespace {

constexpr int kSwitches[] = {SQLITE_DBCONFIG_ENABLE_FKEY, SQLITE_DBCONFIG_ENABLE_TRIGGER,
                             SQLITE_DBCONFIG_ENABLE_VIEW, SQLITE_DBCONFIG_DQS_DML,
                             SQLITE_DBCONFIG_DQS_DDL};

// Of the connection.
constexpr const char* kPragmas[] = {
    "recursive_triggers",   "ignore_check_constraints", "reverse_unordered_selects",
    "automatic_index",      "cell_size_check",          "fullfsync",
    "checkpoint_fullfsync", "wal_autocheckpoint",       "temp_store"};
// Of one database of it.
constexpr const char* kDatabasePragmas[] = {"synchronous", "secure_delete", "cache_size",
                                            "journal_size_limit", "mmap_size"};

// The value of a PRAGMA that is a number; nullopt where this SQLite does not know it.
absl::StatusOr<std::optional<int64_t>> ValueOf(sqlite3* db, absl::string_view pragma) {
  absl::StatusOr<Statement> statement = Statement::Prepare(db, absl::StrCat("PRAGMA ", pragma));
  if (absl::IsPermissionDenied(statement.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat("an authorizer forbids to ask for PRAGMA ", pragma,
                     ", without which a job could do what this connection may not"));
  }
  RETURN_IF_ERROR(statement.status());
  ASSIGN_OR_RETURN(const bool row, statement->Step());
  if (!row || statement->IsNull(0)) return std::nullopt;
  return statement->Integer(0);
}

absl::Status Carry(sqlite3* user, absl::string_view name, sqlite3* own, absl::string_view pragma) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> value, ValueOf(user, name));
  if (!value.has_value()) return absl::OkStatus();
  return Execute(own, absl::StrCat("PRAGMA ", pragma, " = ", *value).c_str());
}

absl::StatusOr<bool> LikeIgnoresCase(sqlite3* db) {
  absl::StatusOr<Statement> like = Statement::Prepare(db, "SELECT 'a' LIKE 'A'");
  if (absl::IsPermissionDenied(like.status())) {
    return absl::FailedPreconditionError(
        "an authorizer forbids to ask what 'a' LIKE 'A' is, which a job must know");
  }
  RETURN_IF_ERROR(like.status());
  ASSIGN_OR_RETURN(const bool row, like->Step());
  return row && like->Integer(0) != 0;
}

// PRAGMA case_sensitive_like cannot be asked for its value, and makes LIKE a function of its own:
// one that no index may have. So it is left alone where both say the same.
absl::Status CarryLike(sqlite3* user, sqlite3* own) {
  ASSIGN_OR_RETURN(const bool wanted, LikeIgnoresCase(user));
  ASSIGN_OR_RETURN(const bool given, LikeIgnoresCase(own));
  if (wanted == given) return absl::OkStatus();
  return Execute(own, absl::StrCat("PRAGMA case_sensitive_like = ", wanted ? 0 : 1).c_str());
}

}  // namespace

absl::Status InheritSettings(sqlite3* user, absl::string_view schema, sqlite3* own) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> query_only, ValueOf(user, "query_only"));
  if (query_only.value_or(0) != 0) {
    return absl::FailedPreconditionError(
        "PRAGMA query_only is on: this connection may not write, and a job would for it");
  }
  // What SQLite does not know it refuses, and has not.
  for (int which : kSwitches) {
    int on = 0;
    if (sqlite3_db_config(user, which, -1, &on) != SQLITE_OK) continue;
    RETURN_IF_ERROR(StatusOf(own, sqlite3_db_config(own, which, on, nullptr)));
  }
  sqlite3_db_config(own, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(own, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(own, SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0, nullptr);
  sqlite3_db_config(own, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, nullptr);
  for (const char* pragma : kPragmas) RETURN_IF_ERROR(Carry(user, pragma, own, pragma));
  for (const char* pragma : kDatabasePragmas) {
    RETURN_IF_ERROR(Carry(user, absl::StrCat(QuotedName(schema), ".", pragma), own,
                          absl::StrCat("main.", pragma)));
  }
  RETURN_IF_ERROR(CarryLike(user, own));
  // Last: the statements above are ours.
  for (int limit = SQLITE_LIMIT_LENGTH; limit <= SQLITE_LIMIT_WORKER_THREADS; ++limit) {
    sqlite3_limit(own, limit, sqlite3_limit(user, limit, -1));
  }
  return absl::OkStatus();
}

}  // namespace lm
