#include "extension/connection/running_work.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/utf8.h"
#include "engine/runtime/fork_guard.h"
#include "extension/host/statement.h"

namespace lm {
namespace {

// What waits asks every 5 ms whether it is cancelled.
constexpr absl::Duration kMostWait = absl::Milliseconds(25);
// For a connection that executes nothing just then: between two rows, or only for a moment.
constexpr absl::Duration kMostIdle = absl::Milliseconds(250);
constexpr absl::Duration kPoll = absl::Milliseconds(1);
constexpr absl::Duration kIdlePoll = absl::Microseconds(20);  // a row may take no longer
constexpr size_t kMostSqlBytes = 64 << 10;

// Whether a thread is within SQLite for the connection, for any statement; true where the host has
// SQLite take no locks.
bool AnythingIsExecuted(sqlite3* db) {
  sqlite3_mutex* const mutex = sqlite3_db_mutex(db);
  if (mutex == nullptr) return true;
  if (sqlite3_mutex_try(mutex) != SQLITE_OK) return true;
  sqlite3_mutex_leave(mutex);
  return false;
}

std::string NameOf(const WorkOwner& owner) {
  const std::string of = owner.process != 0 ? absl::StrCat(" of process ", owner.process) : "";
  return absl::StrCat("connection ", owner.connection, of);
}

}  // namespace

// What is in it is alive: a work takes itself out before it goes.
class WorkList {
 public:
  // The process's; a forked child has one of its own, for the lock of the other may never be let
  // go. Never destroyed.
  static WorkList& Instance() {
    static std::atomic<WorkList*> instance{new WorkList()};
    WorkList* list = instance;
    if (!list->forked()) return *list;
    auto* own = new WorkList();
    if (instance.compare_exchange_strong(list, own)) return *own;
    delete own;
    return *list;
  }

  bool forked() const { return fork_guard_.forked(); }

  void Add(RunningWork* work) {
    absl::MutexLock lock(&mutex_);
    works_.emplace(last_ + 1, work);
    work->id_ = ++last_;
  }

  void Remove(const RunningWork& work) {
    absl::MutexLock lock(&mutex_);
    works_.erase(work.id_);
  }

  std::vector<WorkInfo> All(absl::string_view salt) {
    absl::MutexLock lock(&mutex_);
    std::vector<WorkInfo> all;
    for (const auto& [id, work] : works_) {
      if (work->owner_.salt == salt) all.push_back(work->Info());
    }
    return all;
  }

  // Whether there is nothing left to do for its end. With `insist` its connection is interrupted,
  // if it is executed there.
  bool Cancel(int64_t id, const WorkOwner& canceller, RunningWork::Watch& watch, bool insist) {
    absl::MutexLock lock(&mutex_);
    const auto found = works_.find(id);
    if (found == works_.end() || found->second->owner_.salt != canceller.salt) return true;
    RunningWork& work = *found->second;
    absl::MutexLock work_lock(&work.mutex_);  // so that a call does not end meanwhile
    if (!work.cancelled_) work.cancelled_by_ = NameOf(canceller);
    work.cancelled_ = true;
    // A statement of the canceller's own connection goes on, and ends, when this one is over.
    if (work.responded_ || work.owner_.db == canceller.db) return true;
    if (!insist || !work.IsExecuted(watch)) return false;
    sqlite3_interrupt(work.owner_.db);  // open, since the work is here
    return true;
  }

 private:
  WorkList() = default;

  const ForkGuard fork_guard_;
  absl::Mutex mutex_;
  int64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, RunningWork*> works_ ABSL_GUARDED_BY(mutex_);
};

std::optional<WorkKind> WorkKindOf(absl::string_view name) {
  for (WorkKind kind : {WorkKind::kStatement, WorkKind::kJob, WorkKind::kLoad}) {
    if (WorkKindName(kind) == name) return kind;
  }
  return std::nullopt;
}

absl::string_view WorkKindName(WorkKind kind) {
  switch (kind) {
    case WorkKind::kStatement:
      return "statement";
    case WorkKind::kJob:
      return "job";
    case WorkKind::kLoad:
      return "load";
  }
  return "";
}

RunningWork::RunningWork(WorkList* list, WorkKind kind, WorkOwner owner, std::string text,
                         WorkSpan span, sqlite3_stmt* statement)
    : list_(list),
      owner_(std::move(owner)),
      sql_(kind == WorkKind::kLoad
               ? ""
               : text.substr(0, ValidUtf8Prefix(absl::string_view(text).substr(0, kMostSqlBytes)))),
      span_(std::move(span)),
      kind_(kind),
      name_(kind == WorkKind::kLoad ? std::move(text) : ""),
      statement_(statement),
      calls_(kind == WorkKind::kLoad ? 1 : 0) {}  // a load is over when its call is

std::shared_ptr<RunningWork> RunningWork::Begin(WorkKind kind, WorkOwner owner, std::string text,
                                                const WorkSpan& span, sqlite3_stmt* statement) {
  WorkSpan own = span;
  if (own.spending == nullptr) {
    own = {.began = absl::Now(),
           .start = MonotonicTime::Now(),
           .spending = std::make_shared<Spending>()};
  }
  WorkList& list = WorkList::Instance();
  std::shared_ptr<RunningWork> work(
      new RunningWork(&list, kind, std::move(owner), std::move(text), std::move(own), statement));
  list.Add(work.get());
  return work;
}

RunningWork::~RunningWork() {
  if (!list_->forked()) list_->Remove(*this);
}

std::vector<WorkInfo> RunningWork::All(absl::string_view salt) {
  return WorkList::Instance().All(salt);
}

void RunningWork::Cancel(int64_t id, const WorkOwner& canceller) {
  WorkList& list = WorkList::Instance();
  Watch watch;
  const MonotonicTime until = MonotonicTime::Now() + kMostWait;
  for (MonotonicTime now = MonotonicTime::Now(); now < until + kMostIdle;
       now = MonotonicTime::Now()) {
    if (list.Cancel(id, canceller, watch, /*insist=*/now >= until)) return;
    absl::SleepFor(now >= until ? kIdlePoll : kPoll);
  }
}

// Whether it is this work that is executed on its connection, by all that can be seen from another
// thread, which cannot list the statements there.
bool RunningWork::IsExecuted(Watch& watch) const {
  if (calls_ > 0) return true;
  if (statement_ == nullptr) return false;
  const bool executing = AnythingIsExecuted(owner_.db);
  const int step = StepOf(statement_);
  if (step == step_) return true;  // the step that it has called us from is not over
  // Its host has stepped it again since we looked last, and has nothing that an interrupt of
  // another statement would undo: no transaction, and no writing beside it.
  const bool stepped = watch.step.has_value() && *watch.step != step;
  const int changes = sqlite3_total_changes(owner_.db);
  watch = {.step = step, .changes = watch.changes.value_or(changes)};
  return executing && stepped && changes == watch.changes && sqlite3_get_autocommit(owner_.db) != 0;
}

void RunningWork::EnterCall() {
  absl::MutexLock lock(&mutex_);
  ++calls_;
}

void RunningWork::LeaveCall() {
  absl::MutexLock lock(&mutex_);
  if (--calls_ == 0 && statement_ != nullptr) step_ = StepOf(statement_);
}

void RunningWork::DoubtStatement() {
  absl::MutexLock lock(&mutex_);
  statement_ = nullptr;
}

absl::Status RunningWork::CancelledStatus() {
  absl::MutexLock lock(&mutex_);
  responded_ = true;
  return absl::AbortedError(
      absl::StrCat("cancelled by ", cancelled_by_, ", which deleted it from lm_running"));
}

void RunningWork::CancelWith(const RunningWork& part) {
  std::string canceller;
  {
    absl::MutexLock lock(&part.mutex_);
    canceller = part.cancelled_by_;
  }
  absl::MutexLock lock(&mutex_);
  cancelled_by_ = std::move(canceller);
  cancelled_ = true;
}

void RunningWork::CountAnswer(bool ok, int64_t tokens) {
  absl::MutexLock lock(&mutex_);
  ++(ok ? counts_.done : counts_.failed);
  counts_.tokens += tokens;
}

void RunningWork::CountForeseen(int64_t count) {
  absl::MutexLock lock(&mutex_);
  counts_.foreseen += count;
}

void RunningWork::AnnounceRows(int64_t rows) {
  absl::MutexLock lock(&mutex_);
  counts_.total = announced_ ? std::nullopt : std::optional<int64_t>(rows);
  announced_ = true;
}

void RunningWork::SetHint(std::string hint) {
  absl::MutexLock lock(&mutex_);
  hint_ = std::move(hint);
}

void RunningWork::BecomeJob(std::string name) {
  absl::MutexLock lock(&mutex_);
  kind_ = WorkKind::kJob;
  name_ = std::move(name);
}

void RunningWork::SetJobCounts(int64_t total, int64_t done, int64_t failed, int64_t before) {
  absl::MutexLock lock(&mutex_);
  counts_.total = total;
  counts_.done = done;
  counts_.failed = failed;
  counts_.before = before;
}

WorkInfo RunningWork::Info() const {
  absl::MutexLock lock(&mutex_);
  WorkInfo info = {.id = id_,
                   .connection = owner_.connection,
                   .kind = kind_,
                   .sql = sql_,
                   .name = name_,
                   .hint = hint_,
                   .counts = counts_,
                   .began = span_.began,
                   .elapsed = MonotonicTime::Now() - span_.start,
                   .waiting_for = ""};
  if (const char* what = waiting_for_) info.waiting_for = what;
  // Other functions of the statement ask, too.
  if (counts_.total < counts_.done + counts_.failed) info.counts.total.reset();
  return info;
}

}  // namespace lm
