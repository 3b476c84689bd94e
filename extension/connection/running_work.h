// RunningWork: what runs in this process, for lm_running: which connection it belongs to, how far
// it is, and a flag by which another connection can end it.
//
//   auto work = RunningWork::Begin(WorkKind::kLoad, {.db = db, .connection = 3, .salt = salt},
//   path);
//   ...
//   if (work->cancelled()) return work->CancelledStatus();
//
// A statement's record is made by statement_call.h and lives until the statement is reset.
#ifndef LM_EXTENSION_CONNECTION_RUNNING_WORK_H_
#define LM_EXTENSION_CONNECTION_RUNNING_WORK_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/base/monotonic_time.h"
#include "engine/runtime/memo_scan.h"
#include "extension/connection/spending.h"
#include "extension/host/sqlite_api.h"

namespace lm {

enum class WorkKind { kStatement, kJob, kLoad };
absl::string_view WorkKindName(WorkKind kind);  // "statement", "job", "load"
std::optional<WorkKind> WorkKindOf(absl::string_view name);

// Whose work it is. Connections of the same `salt` may see it (Connection::Salt()).
struct WorkOwner {
  sqlite3* db = nullptr;    // null in another process
  int64_t process = 0;      // 0: this one
  uint64_t connection = 0;  // its number in the process
  std::string salt;
};

// How far it is. Of a statement: the answers that it has been given.
struct WorkCounts {
  std::optional<int64_t> total;  // where it is known
  int64_t done = 0;
  int64_t failed = 0;
  int64_t before = 0;    // of these, rows that were done or failed when it began
  int64_t foreseen = 0;  // answers that look-ahead had asked for
  int64_t tokens = 0;    // generated for it
};

// What others see of it at one moment.
struct WorkInfo {
  int64_t id = 0;       // in its process
  int64_t process = 0;  // 0: this one
  uint64_t connection = 0;
  WorkKind kind = WorkKind::kStatement;
  std::string sql;   // of a statement
  std::string name;  // of a job, or a model's file
  std::string hint;  // what makes it slow; empty: nothing is known
  WorkCounts counts;
  absl::Time began;
  absl::Duration elapsed;
  std::string waiting_for;  // empty: it is SQLite's or its host's turn
};

// What records of one statement share: its budgets count from its beginning.
struct WorkSpan {
  absl::Time began = absl::InfinitePast();  // no record has been made yet
  MonotonicTime start = {};                 // the same moment
  std::shared_ptr<Spending> spending = {};
};

class WorkList;  // of all in the process

// Thread-safe. REQUIRES: destroyed while its owner's connection is still open.
class RunningWork {
 public:
  // `span` is that of an earlier record of the same statement, if there was one; `statement` the
  // one that it is of, where there is no doubt, so that it outlives the record.
  static std::shared_ptr<RunningWork> Begin(WorkKind kind, WorkOwner owner, std::string text,
                                            const WorkSpan& span = {},
                                            sqlite3_stmt* statement = nullptr);
  ~RunningWork();
  RunningWork(const RunningWork&) = delete;
  RunningWork& operator=(const RunningWork&) = delete;

  // What runs in this process for `salt`, the oldest first.
  static std::vector<WorkInfo> All(absl::string_view salt);
  // Ends the work of that number in this process, if it is one of `canceller`'s salt: it is asked
  // to, and where that takes it longer than a moment (it may be deep in SQLite), its connection is
  // interrupted, but only while it is this work that is executed there: an interrupt ends all that
  // the connection has begun, and a transaction with it. Else it ends at its next call of ours.
  static void Cancel(int64_t id, const WorkOwner& canceller);

  const std::atomic<bool>& cancelled() const { return cancelled_; }
  // Says which connection has cancelled it. Not Cancelled, which is an interrupt by its own host,
  // for which SQLite may roll back more than the statement. REQUIRES: cancelled().
  absl::Status CancelledStatus();
  // Ends this, too, as cancelled by the connection that has cancelled `part`, which it waits for.
  void CancelWith(const RunningWork& part);

  // A thread is within a call of ours for it. May nest.
  void EnterCall();
  void LeaveCall();
  // It turns out not to be certain whose record it is.
  void DoubtStatement();

  // What it waits for, a literal; nullptr: nothing of ours.
  void set_waiting_for(const char* what) { waiting_for_ = what; }
  const char* waiting_for() const { return waiting_for_; }

  void CountAnswer(bool ok, int64_t tokens);
  void CountForeseen(int64_t count);
  // A scan that knows its rows begins. With a second one (perhaps there is one for each row of
  // another table) the total is not known any more.
  void AnnounceRows(int64_t rows);
  void SetHint(std::string hint);
  // A statement that turns out to run a job.
  void BecomeJob(std::string name);
  void SetJobCounts(int64_t total, int64_t done, int64_t failed, int64_t before);

  const std::string& sql() const { return sql_; }
  // Of the statement. Used on its thread.
  const std::shared_ptr<Spending>& spending() const { return span_.spending; }
  const WorkSpan& span() const { return span_; }
  const std::shared_ptr<MemoScan>& scan() const { return scan_; }
  MonotonicTime start() const { return span_.start; }

 private:
  friend class WorkList;

  // What a canceller saw when it last looked.
  struct Watch {
    std::optional<int> step;
    std::optional<int> changes;  // when it looked first
  };

  RunningWork(WorkList* list, WorkKind kind, WorkOwner owner, std::string text, WorkSpan span,
              sqlite3_stmt* statement);
  WorkInfo Info() const;
  bool IsExecuted(Watch& watch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  WorkList* const list_;
  const WorkOwner owner_;
  const std::string sql_;
  const WorkSpan span_;
  const std::shared_ptr<MemoScan> scan_ = std::make_shared<MemoScan>();
  int64_t id_ = 0;  // constant once it is listed
  std::atomic<bool> cancelled_{false};
  std::atomic<const char*> waiting_for_{nullptr};
  mutable absl::Mutex mutex_;
  WorkKind kind_ ABSL_GUARDED_BY(mutex_);
  std::string name_ ABSL_GUARDED_BY(mutex_);
  std::string hint_ ABSL_GUARDED_BY(mutex_);
  WorkCounts counts_ ABSL_GUARDED_BY(mutex_);
  bool announced_ ABSL_GUARDED_BY(mutex_) = false;
  std::string cancelled_by_ ABSL_GUARDED_BY(mutex_);
  bool responded_ ABSL_GUARDED_BY(mutex_) = false;
  sqlite3_stmt* statement_ ABSL_GUARDED_BY(mutex_);  // null: not known for certain
  int calls_ ABSL_GUARDED_BY(mutex_);                // that a thread is within
  int step_ ABSL_GUARDED_BY(mutex_) = 0;             // StepOf(statement_) in the last call
};

// Says what a work waits for, as long as it lives.
class WaitingFor {
 public:
  // `work` may be null.
  WaitingFor(RunningWork* work, const char* what)
      : work_(work), before_(work != nullptr ? work->waiting_for() : nullptr) {
    if (work_ != nullptr) work_->set_waiting_for(what);
  }
  ~WaitingFor() {
    if (work_ != nullptr) work_->set_waiting_for(before_);
  }
  WaitingFor(const WaitingFor&) = delete;
  WaitingFor& operator=(const WaitingFor&) = delete;

 private:
  RunningWork* const work_;
  const char* const before_;
};

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_RUNNING_WORK_H_
