// JobDatabase: the connection on which a job reads its query and writes its answers.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<JobDatabase> database, JobDatabase::Open(db, "main"));
//   RETURN_IF_ERROR(database->Transact([&] { return Claim(database->db()); }));
//
// What a statement writes on its own connection becomes part of that connection's locks: while the
// SELECT on lm_run() runs, nothing of it could be let go. So a database with a file is opened a
// second time; the connection does what the user's would (inherit_settings.h). A database in memory
// has but one connection; there, transactions are those of the user's.
#ifndef LM_EXTENSION_JOBS_JOB_DATABASE_H_
#define LM_EXTENSION_JOBS_JOB_DATABASE_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/base/monotonic_time.h"
#include "extension/host/interrupt.h"
#include "extension/host/sqlite_api.h"

namespace lm {

// An error in words that go on after the name of what it is about; an interrupt, and a lock of
// others, are about nothing of the job's.
absl::Status InWordsOf(absl::string_view what, const absl::Status& status);

// Not thread-safe; used while a statement of the user's connection runs.
class JobDatabase {
 public:
  // The database that `user` calls `schema`. FailedPrecondition inside a transaction, and where the
  // database's file is no longer where it was opened.
  static absl::StatusOr<std::unique_ptr<JobDatabase>> Open(sqlite3* user, std::string schema);
  ~JobDatabase();
  JobDatabase(const JobDatabase&) = delete;
  JobDatabase& operator=(const JobDatabase&) = delete;

  sqlite3* db() const { return db_; }
  // Whether it is a connection of its own.
  bool own() const { return db_ != user_; }
  // What db() calls the database, for use in a statement: {db} of `sql` is replaced by it.
  std::string Sql(absl::string_view sql) const;
  // What the user calls it.
  const std::string& schema() const { return schema_; }

  // FailedPrecondition where `user` can only read it: then db() can do no more.
  absl::Status CheckWritable() const;
  // FailedPrecondition where `user` itself holds a lock that commits would wait for.
  absl::Status CheckUsersLocks();
  // PermissionDenied where `sql` would do on db() what the user's authorizer forbids, or reach
  // beyond the database. In words that go on after its name.
  absl::Status CheckAllowed(const std::string& sql);
  // Triggers that keep an index of full-text search are unsafe for SQLite 3.40, say, on a
  // connection that does not trust the schema. This one does from now on, if the user's does, and
  // all that they can reach so is SQLite's own or harmless; false where it is not.
  absl::StatusOr<bool> TrustFullText();
  // Why a table that the job names is none for it, where the user has one of that name; else empty.
  absl::StatusOr<std::string> WhereElse(absl::string_view table) const;
  // The same of a function.
  absl::StatusOr<std::string> WhatElse(absl::string_view function) const;
  // And of a collation.
  absl::StatusOr<std::string> WhichElse(absl::string_view collation) const;
  // Of the user's statement.
  bool Interrupted() { return poll_.Interrupted(); }

  // Others that hold a lock are waited for as long as the user's connection waits (PRAGMA
  // busy_timeout), or kFirstWait where that is not set. From now on, for kMostWait: what has been
  // worked for would be lost.
  void Persevere() { patience_ = kMostWait; }
  // Runs `body` between BEGIN IMMEDIATE and COMMIT, or ROLLBACK where it fails. Unavailable where a
  // lock was waited for in vain, `patience` where that is given; an interrupt ends the waiting with
  // Cancelled.
  absl::Status Transact(absl::FunctionRef<absl::Status()> body,
                        std::optional<absl::Duration> patience = std::nullopt);
  // How long the lock of the transaction was waited for.
  absl::Duration waited() const { return waited_; }
  // The same status; one of a lock that was waited for in vain says whose it must be, and Cancelled
  // where an interrupt has ended the wait.
  absl::Status Locked(absl::Status status, bool by_readers);

 private:
  static constexpr absl::Duration kFirstWait = absl::Seconds(5);
  static constexpr absl::Duration kMostWait = absl::Minutes(10);

  JobDatabase(sqlite3* user, std::string schema);

  bool read_only() const;
  absl::Status OpenOwn(const char* path);
  // FailedPrecondition where the user's file, or ours, was renamed, replaced or deleted.
  absl::Status CheckFile() const;
  // For SQLite, which asks whether a statement that found a lock is to try again.
  bool WaitForLock(int times_before);
  // Repeats `sql`, BEGIN IMMEDIATE or COMMIT, while others hold the lock.
  absl::Status ExecutePatiently(const char* sql, MonotonicTime until);

  sqlite3* const user_;
  const std::string schema_;
  sqlite3* db_;
  InterruptPoll poll_;
  absl::Duration patience_;
  absl::Duration waited_;
  bool wait_for_locks_ = true;
};

}  // namespace lm

#endif  // LM_EXTENSION_JOBS_JOB_DATABASE_H_
