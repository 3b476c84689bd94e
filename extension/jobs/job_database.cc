#include "extension/jobs/job_database.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/status_macros.h"
#include "extension/connection/statement_call.h"
#include "extension/host/ask_authorizer.h"
#include "extension/host/boundary.h"
#include "extension/host/host.h"
#include "extension/host/inherit_settings.h"
#include "extension/host/sql_tokens.h"
#include "extension/host/statement.h"
#include "extension/jobs/job_reach.h"

namespace lm {
namespace {

constexpr int kVersionWithTransactionState = 3034000;
constexpr absl::Duration kRetry = absl::Milliseconds(2);
constexpr int kInstructionsPerPoll = 20000;  // of SQLite's bytecode: less than a millisecond

int TransactionState(sqlite3* db, const char* schema) {
  if (sqlite3_libversion_number() < kVersionWithTransactionState) return SQLITE_TXN_NONE;
  return sqlite3_txn_state(db, schema);
}

absl::StatusOr<std::string> FirstValue(sqlite3* db, absl::string_view sql) {
  ASSIGN_OR_RETURN(Statement statement, Statement::Prepare(db, sql));
  ASSIGN_OR_RETURN(const bool row, statement.Step());
  if (!row) return "";
  return statement.Text(0);
}

// Whether the path of a file that is open leads elsewhere by now. False where the VFS cannot tell.
bool HasMoved(sqlite3* db, const char* schema) {
  int moved = 0;
  const int code = sqlite3_file_control(db, schema, SQLITE_FCNTL_HAS_MOVED, &moved);
  return code == SQLITE_OK && moved != 0;
}

}  // namespace

absl::Status InWordsOf(absl::string_view what, const absl::Status& status) {
  if (status.ok() || absl::IsCancelled(status) || absl::IsUnavailable(status)) return status;
  return absl::Status(status.code(), absl::StrCat(what, " ", status.message()));
}

JobDatabase::JobDatabase(sqlite3* user, std::string schema)
    : user_(user), schema_(std::move(schema)), db_(user), poll_(user), patience_(kFirstWait) {
  // Where an authorizer forbids to ask, nothing is known of it.
  const absl::StatusOr<std::string> timeout = FirstValue(user, "PRAGMA busy_timeout");
  int32_t milliseconds = 0;
  if (timeout.ok() && absl::SimpleAtoi(*timeout, &milliseconds) && milliseconds > 0) {
    patience_ = absl::Milliseconds(milliseconds);
  }
}

absl::StatusOr<std::unique_ptr<JobDatabase>> JobDatabase::Open(sqlite3* user, std::string schema) {
  if (sqlite3_get_autocommit(user) == 0) {
    return absl::FailedPreconditionError(
        "cannot run a job from within a transaction: it commits; COMMIT first (in Python "
        "db.commit(), or isolation_level=None)");
  }
  if (sqlite3_db_readonly(user, schema.c_str()) < 0) {
    return absl::NotFoundError(absl::StrCat("there is no database named '", schema, "'"));
  }
  std::unique_ptr<JobDatabase> database(new JobDatabase(user, std::move(schema)));
  // SQLite's own names are absolute; others belong to databases in memory.
  const char* path = sqlite3_db_filename(user, database->schema_.c_str());
  if (path != nullptr && *path == '/') {
    RETURN_IF_ERROR(database->Locked(database->OpenOwn(path), /*by_readers=*/false));
  }
  return database;
}

std::string JobDatabase::Sql(absl::string_view sql) const {
  return absl::StrReplaceAll(sql, {{"{db}", own() ? "main" : QuotedName(schema_)}});
}

bool JobDatabase::read_only() const { return sqlite3_db_readonly(user_, schema_.c_str()) == 1; }

absl::Status JobDatabase::CheckWritable() const {
  if (!read_only()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the database ", schema_ == "main" ? "" : absl::StrCat(schema_, " "),
                   "is read-only: a job keeps its rows there"));
}

absl::Status JobDatabase::CheckFile() const {
  if (!own() || (!HasMoved(db_, "main") && !HasMoved(user_, schema_.c_str()))) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("'", sqlite3_db_filename(user_, schema_.c_str()),
                   "' is another file than the one that this connection has open: it was renamed, "
                   "replaced or deleted"));
}

absl::Status JobDatabase::CheckAllowed(const std::string& sql) {
  return own() ? AskAuthorizer(user_, schema_, db_, sql) : CheckReach(db_, schema_, sql);
}

absl::StatusOr<bool> JobDatabase::TrustFullText() {
  int trusted = 0;  // by the user
  sqlite3_db_config(user_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, -1, &trusted);
  if (!own() || trusted == 0) return false;
  // What an extension of the host's (sqlite3_auto_extension) has brought, if any.
  constexpr char kForeign[] =
      "SELECT 1 FROM pragma_module_list WHERE name NOT LIKE 'pragma\\_%' ESCAPE '\\' AND "
      "name NOT LIKE 'lm\\_%' ESCAPE '\\' AND name NOT IN ('json_each', 'json_tree', 'fts3', "
      "'fts4', 'fts5', 'fts3tokenize', 'fts4aux', 'fts5vocab', 'rtree', 'rtree_i32', 'geopoly', "
      "'dbstat', 'sqlite_dbpage', 'sqlite_stmt', 'bytecode', 'tables_used') UNION ALL "
      "SELECT 1 FROM pragma_function_list WHERE NOT builtin AND NOT flags & ?1 AND "
      "name NOT LIKE 'lm\\_%' ESCAPE '\\' AND name NOT IN ("
      "'match', 'snippet', 'offsets', 'matchinfo', 'optimize', 'highlight', 'bm25', 'fts5', "
      "'fts5_source_id', 'fts5_locale', 'fts5_insttoken', 'fts5_get_locale', 'rtreedepth', "
      "'rtreenode', 'rtreecheck') AND name NOT LIKE 'geopoly\\_%' ESCAPE '\\' LIMIT 1";
  absl::StatusOr<Statement> foreign = Statement::Prepare(db_, kForeign);
  if (!foreign.ok()) return false;
  foreign->Bind(1, int64_t{SQLITE_INNOCUOUS | SQLITE_DIRECTONLY});
  ASSIGN_OR_RETURN(const bool found, foreign->Step());
  if (found) return false;
  sqlite3_db_config(db_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 1, nullptr);
  return true;
}

absl::StatusOr<std::string> JobDatabase::WhereElse(absl::string_view table) const {
  const std::pair<std::string, std::string> parts = absl::StrSplit(table, absl::MaxSplits('.', 1));
  const std::string& name = parts.second.empty() ? parts.first : parts.second;
  ASSIGN_OR_RETURN(Statement databases, Statement::Prepare(user_, "PRAGMA database_list"));
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, databases.Step());
    if (!row) return "";
    ASSIGN_OR_RETURN(const std::string schema, databases.Text(1));
    if (absl::EqualsIgnoreCase(schema, schema_)) continue;
    if (!parts.second.empty() && !absl::EqualsIgnoreCase(schema, parts.first)) continue;
    const int code = sqlite3_table_column_metadata(user_, schema.c_str(), name.c_str(), nullptr,
                                                   nullptr, nullptr, nullptr, nullptr, nullptr);
    if (code != SQLITE_OK) continue;
    const bool temp = absl::EqualsIgnoreCase(schema, "temp");
    return absl::StrCat(
        name, temp ? " is a temporary table of yours" : " is a table of the attached database ",
        temp ? "" : schema,
        ": a job runs on a connection of its own, to its database alone, so that it can go on "
        "tomorrow; copy the rows into a table of that database");
  }
}

absl::StatusOr<std::string> JobDatabase::WhatElse(absl::string_view function) const {
  ASSIGN_OR_RETURN(
      Statement known,
      Statement::Prepare(user_, "SELECT 1 FROM pragma_function_list WHERE name = lower(?)"));
  ASSIGN_OR_RETURN(const bool found, known.Bind(1, function).Step());
  if (!found) return "";
  if (function == "generate" || absl::StartsWith(function, "generate_") ||
      absl::StartsWith(function, "lm_")) {
    return absl::StrCat(
        function,
        "() is not for a job's own statements: the job itself asks the model, once for "
        "each prompt of its query, and its target runs while the database is locked; of our "
        "functions they know lm_chunks, lm_token_count, lm_tokenize, lm_detokenize, lm_render, "
        "lm_prompt and lm_field_order");
  }
  return absl::StrCat(
      function,
      "() was registered on your connection: a job runs on a connection of its own, which "
      "knows SQLite's functions, lm_chunks, lm_token_count and their like");
}

absl::StatusOr<std::string> JobDatabase::WhichElse(absl::string_view collation) const {
  ASSIGN_OR_RETURN(Statement known,
                   Statement::Prepare(
                       user_, "SELECT 1 FROM pragma_collation_list WHERE name = ? COLLATE NOCASE"));
  ASSIGN_OR_RETURN(const bool found, known.Bind(1, collation).Step());
  if (!found) return "";
  return absl::StrCat(
      collation,
      " was registered on your connection: a job runs on a connection of its own, which knows "
      "BINARY, NOCASE and RTRIM; it cannot compare, sort or index columns of another collation");
}

absl::Status JobDatabase::OpenOwn(const char* path) {
  ASSIGN_OR_RETURN(
      const std::string locking,
      FirstValue(user_, absl::StrCat("PRAGMA ", QuotedName(schema_), ".locking_mode")));
  // SQLite says so, too, of a file that never changes (immutable=1): that one is read-only.
  if (absl::EqualsIgnoreCase(locking, "exclusive") && !read_only()) {
    return absl::FailedPreconditionError(
        "this connection has the database for itself (PRAGMA locking_mode = exclusive): a job "
        "needs a second one");
  }
  sqlite3_vfs* vfs = nullptr;
  sqlite3_file_control(user_, schema_.c_str(), SQLITE_FCNTL_VFS_POINTER, &vfs);
  sqlite3* own = nullptr;
  const int access = read_only() ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
  // With a cache of its own: a shared one is locked as long as the user's statement is stepped.
  const int code =
      sqlite3_open_v2(path, &own, access | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
                      vfs != nullptr ? vfs->zName : nullptr);
  if (code != SQLITE_OK) {
    absl::Status status = absl::FailedPreconditionError(
        absl::StrCat("cannot open '", path, "' a second time: ", sqlite3_errmsg(own)));
    sqlite3_close(own);
    return status;
  }
  db_ = own;
  // With a rollback journal, reading waits for others' commits, too.
  sqlite3_busy_handler(
      db_,
      [](void* self, int times_before) {
        return static_cast<JobDatabase*>(self)->WaitForLock(times_before) ? 1 : 0;
      },
      this);
  RETURN_IF_ERROR(CheckFile());
  RETURN_IF_ERROR(InheritSettings(user_, schema_, own));
  // What runs on this connection ends with the statement that asked for it. Where the host cannot
  // say so, an interrupt waits for the end of the step.
  if (const ProgressHandlerFunction progress_handler = FindProgressHandler()) {
    progress_handler(
        db_, kInstructionsPerPoll,
        [](void* self) { return static_cast<JobDatabase*>(self)->Interrupted() ? 1 : 0; }, this);
  }
  return absl::OkStatus();
}

JobDatabase::~JobDatabase() {
  if (own()) sqlite3_close_v2(db_);
}

absl::Status JobDatabase::CheckUsersLocks() {
  const int state = TransactionState(user_, schema_.c_str());
  if (state == SQLITE_TXN_WRITE) {
    return absl::FailedPreconditionError(
        "cannot run a job inside a statement that writes the database: it commits");
  }
  if (!own()) return absl::OkStatus();
  if (state == SQLITE_TXN_NONE) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string journal, FirstValue(db_, "PRAGMA main.journal_mode"));
  if (absl::EqualsIgnoreCase(journal, "wal")) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "this connection is reading the database, in this statement or another one that has not "
      "ended, and with journal_mode ",
      journal, " nothing can be committed meanwhile"));
}

bool JobDatabase::WaitForLock(int times_before) {
  if (!wait_for_locks_ || times_before * kRetry >= patience_ || Interrupted()) return false;
  absl::SleepFor(kRetry);
  return true;
}

absl::Status JobDatabase::Locked(absl::Status status, bool by_readers) {
  if (!absl::IsUnavailable(status)) return status;
  if (Interrupted()) return absl::CancelledError("interrupted");  // which has ended the wait
  return absl::UnavailableError(absl::StrCat(
      status.message(), ": another connection, of this process or of another, ",
      by_readers ? "is reading" : "is writing", " ",
      schema_ == "main" ? "it" : absl::StrCat("the database ", schema_), " and did not end within ",
      absl::FormatDuration(patience_),
      patience_ == kMostWait ? "" : " (PRAGMA busy_timeout, or 5s where that is not set)"));
}

absl::Status JobDatabase::ExecutePatiently(const char* sql, MonotonicTime until) {
  for (;;) {
    wait_for_locks_ = false;  // the waiting is done here
    absl::Status status = Execute(db_, sql);
    wait_for_locks_ = true;
    if (!absl::IsUnavailable(status)) return status;
    const std::shared_ptr<RunningWork> work = StatementCall::Work();
    const WaitingFor lock(work.get(), "lock");
    if (Interrupted()) return absl::CancelledError("interrupted");
    // The user may have begun to read since.
    RETURN_IF_ERROR(CheckUsersLocks());
    // With a rollback journal, a commit waits for readers.
    if (MonotonicTime::Now() >= until)
      return Locked(std::move(status), absl::string_view(sql) == "COMMIT");
    absl::SleepFor(kRetry);
  }
}

absl::Status JobDatabase::Transact(absl::FunctionRef<absl::Status()> body,
                                   std::optional<absl::Duration> patience) {
  const MonotonicTime begun = MonotonicTime::Now();
  const MonotonicTime until = begun + patience.value_or(patience_);
  RETURN_IF_ERROR(CheckFile());
  // On the user's connection an interrupt lasts until his statement has ended, and ends a ROLLBACK,
  // too; a statement that may write it ends with all of the transaction.
  Statement writer;
  if (!own()) {
    ASSIGN_OR_RETURN(writer, Statement::Prepare(db_, "BEGIN IMMEDIATE"));
  }
  RETURN_IF_ERROR(ExecutePatiently("BEGIN IMMEDIATE", until));
  waited_ = MonotonicTime::Now() - begun;
  absl::Status status = Guarded(body);  // or an exception would leave the transaction open
  // A trigger or an ON CONFLICT ROLLBACK of the job's target.
  if (sqlite3_get_autocommit(db_) != 0) {
    return status.ok() ? absl::AbortedError("the transaction was rolled back by a statement in it")
                       : status;
  }
  // Readers are waited for, too: in a rollback journal a commit needs the database alone.
  if (status.ok()) status = ExecutePatiently("COMMIT", until);
  if (!status.ok() && sqlite3_get_autocommit(db_) == 0) {
    sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
    if (writer.prepared() && sqlite3_get_autocommit(db_) == 0) writer.Run().IgnoreError();
  }
  return status;
}

}  // namespace lm
