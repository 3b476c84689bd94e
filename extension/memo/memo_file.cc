#include "extension/memo/memo_file.h"

#include <cstdio>
#include <limits>
#include <map>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// In the file's header, where file(1) and SQLite's tools look: "LMmo", and the version of what
// follows.
constexpr int kApplicationId = 0x4c4d6d6f;
constexpr int kVersion = 4;

#define LM_MEMO_KEY "hash = ?1 AND model = ?2 AND options = ?3 AND prompt = ?4"
#define LM_MEMO_COLUMNS \
  "model, options, prompt, answer, tokens, finish, seal, choices, tokens_in, tokens_out"
constexpr char kFind[] = "SELECT id, " LM_MEMO_COLUMNS " FROM generations WHERE " LM_MEMO_KEY;
constexpr char kList[] = "SELECT id, " LM_MEMO_COLUMNS
                         ", created, used FROM generations WHERE id > ?1 AND id <= ?2 ORDER BY id";
constexpr int kListCreated = 11, kListUsed = 12;  // columns
constexpr char kLast[] = "SELECT max(id) FROM generations";
constexpr char kGet[] = "SELECT id, " LM_MEMO_COLUMNS " FROM generations WHERE id = ?1";
#define LM_MEMO_NOW "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
constexpr char kInsert[] = "INSERT INTO generations(hash, " LM_MEMO_COLUMNS
                           ", created, used) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, "
                           "?11, " LM_MEMO_NOW ", " LM_MEMO_NOW ")";
constexpr char kTouch[] = "UPDATE generations SET used = " LM_MEMO_NOW " WHERE id = ?1";
#undef LM_MEMO_NOW
// Of one key there is one row: another one could not be believed, or was another process's.
constexpr char kReplace[] = "DELETE FROM generations WHERE " LM_MEMO_KEY;
#undef LM_MEMO_COLUMNS
#undef LM_MEMO_KEY
constexpr char kDelete[] = "DELETE FROM generations WHERE id = ?1";
// A sixteenth of the rows, but no more than take some milliseconds.
constexpr char kDropUnused[] =
    "DELETE FROM generations WHERE id IN (SELECT id FROM generations ORDER BY used, id "
    "LIMIT 1 + (SELECT count(*) FROM (SELECT 1 FROM generations LIMIT 1024)) / 16)";
constexpr size_t kMostTouched = 10000;
constexpr char kPages[] =
    "SELECT (SELECT page_count FROM pragma_page_count) - "
    "(SELECT freelist_count FROM pragma_freelist_count), page_size FROM pragma_page_size";

// The process's files.
struct AllFiles {
  absl::Mutex mutex;
  std::map<std::string, std::weak_ptr<MemoFile>> by_path ABSL_GUARDED_BY(mutex);
};
AllFiles& Files() {
  static AllFiles* const files = new AllFiles();
  return *files;
}

absl::StatusOr<Statement> Kept(sqlite3* db, const char* sql) {
  return Statement::Prepare(db, sql, SQLITE_PREPARE_PERSISTENT);
}

// Whether SQLite is to try again for a lock that another process holds.
int WaitForOthers(void*, int times_before) {
  constexpr int kStepMs = 2;
  if (times_before * kStepMs >= MemoFile::kBusyMs || Interrupted()) return 0;
  absl::SleepFor(absl::Milliseconds(kStepMs));
  return 1;
}

constexpr absl::Duration kLogPause = absl::Minutes(1);

constexpr absl::string_view kCompanions[] = {"-wal", "-shm"};

// Whether `path` still leads to what it led to when that was seen; its contents may differ.
bool LeadsTo(const std::string& path, const absl::StatusOr<FileIdentity>& seen) {
  const absl::StatusOr<FileIdentity> now = IdentifyFile(path);
  return now.ok() && seen.ok() && now->device == seen->device && now->inode == seen->inode;
}

}  // namespace

std::shared_ptr<MemoFile> MemoFile::Of(const std::string& path) {
  AllFiles& files = Files();
  absl::MutexLock lock(&files.mutex);
  if (auto known = files.by_path.find(path); known != files.by_path.end()) {
    std::shared_ptr<MemoFile> file = known->second.lock();
    if (file != nullptr && !file->LeaveToParent()) return file;
  }
  std::erase_if(files.by_path, [](const auto& entry) { return entry.second.expired(); });
  std::shared_ptr<MemoFile> file(new MemoFile(path));
  files.by_path[path] = file;
  return file;
}

MemoFile::MemoFile(std::string path) : path_(std::move(path)), owner_("memo:" + path_) {}

bool MemoFile::LeaveToParent() noexcept {
  if (!fork_guard_.forked() || !mutex_.TryLock()) return false;
  // Neither writes the parent's log into the file nor deletes it.
  if (db_ != nullptr) {
    sqlite3_db_config(db_.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  }
  Close();
  mutex_.Unlock();
  return true;
}

MemoFile::~MemoFile() {
  if (fork_guard_.forked()) {
    if (LeaveToParent()) return;
    // Another thread was using it when the process was forked: it may be half written.
    for (Statement* statement : Statements()) new Statement(std::move(*statement));
    db_.release();
    return;
  }
  const FairMutexLock lock(&mutex_);  // which no other thread has any more
  next_open_ = next_write_ = MonotonicTime::InfinitePast();
  try {
    WritePending();
    if (db_ != nullptr && !touched_.empty()) Write({}).IgnoreError();
    DropUnused();
  } catch (...) {  // no memory
  }
  Close();
}

absl::Status MemoFile::Named(const absl::Status& status) const {
  if (status.ok() || absl::IsCancelled(status)) return status;
  return absl::Status(status.code(), absl::StrCat("the memo '", path_, "': ", status.message()));
}

// SQLite's log hears of it as well, but not of each failure.
void MemoFile::NoteTrouble(const absl::Status& status) {
  std::string text;
  {
    absl::MutexLock lock(&pending_mutex_);
    const MonotonicTime now = MonotonicTime::Now();
    if (!status.ok() && trouble_.ok() && now >= next_log_) {
      text = Named(status).ToString();
      next_log_ = now + kLogPause;
    }
    trouble_ = status;
    if (status.ok()) num_lost_ = 0;  // of a trouble that is over
  }
  if (!text.empty()) sqlite3_log(SQLITE_WARNING, "sqlite-lm: %s", text.c_str());
}

std::string MemoFile::Trouble() const {
  absl::MutexLock lock(&pending_mutex_);
  if (trouble_.ok()) return "";
  std::string text = absl::StrCat(Named(trouble_).message(), "; answers are given without it, ",
                                  pending_.size(), " wait to be written");
  if (num_lost_ > 0) absl::StrAppend(&text, ", ", num_lost_, " will not be");
  return text;
}

void MemoFile::Close() {
  for (Statement* statement : Statements()) *statement = Statement();
  db_.reset();
  touched_.clear();  // of that file
}

void MemoFile::CloseForAWhile(const absl::Status& why) {
  Close();
  not_open_ = why;
  next_open_ = MonotonicTime::Now() + kPause;
}

absl::Status MemoFile::Open() {
  if (fork_guard_.forked()) return ForkGuard::Error();
  const FairMutexLock lock(&mutex_);
  RETURN_IF_ERROR(lock.status());
  next_open_ = MonotonicTime::InfinitePast();
  return Named(EnsureOpen());
}

absl::Status MemoFile::EnsureOpen() {
  if (db_ != nullptr && !LeadsTo(path_, identity_)) {
    Close();
    // The log of the file that was there. SQLite would put it into the one that is there now.
    for (size_t i = 0; i < companions_.size(); ++i) {
      const std::string companion = absl::StrCat(path_, kCompanions[i]);
      if (LeadsTo(companion, companions_[i])) std::remove(companion.c_str());
    }
  }
  if (db_ != nullptr) return absl::OkStatus();
  if (MonotonicTime::Now() < next_open_) return not_open_;
  // What is opened by half is closed, whichever way this ends.
  absl::Cleanup close = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { Close(); };
  absl::Status opened = Prepare();
  if (opened.ok()) {
    std::move(close).Cancel();
  } else {
    CloseForAWhile(opened);
  }
  return opened;
}

absl::Status MemoFile::Prepare() {
  sqlite3* db = nullptr;
  const int code = sqlite3_open_v2(
      path_.c_str(), &db,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
      nullptr);
  db_.reset(db);
  RETURN_IF_ERROR(StatusOf(db, code));
  identity_ = IdentifyFile(path_);
  RETURN_IF_ERROR(StatusOf(db, sqlite3_busy_handler(db, &WaitForOthers, nullptr)));
  for (const auto& [option, value] :
       {std::pair(SQLITE_DBCONFIG_DEFENSIVE, 1), std::pair(SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
        std::pair(SQLITE_DBCONFIG_ENABLE_TRIGGER, 0), std::pair(SQLITE_DBCONFIG_ENABLE_VIEW, 0)}) {
    RETURN_IF_ERROR(StatusOf(db, sqlite3_db_config(db, option, value, nullptr)));
  }
  RETURN_IF_ERROR(Execute(db, "PRAGMA cell_size_check = ON"));
  // Only a file that is ours, or empty, is written to.
  RETURN_IF_ERROR(CheckSchema());
  // In WAL mode a commit is an append; at NORMAL, without waiting for the disk.
  RETURN_IF_ERROR(Execute(db, "PRAGMA journal_mode = WAL"));
  RETURN_IF_ERROR(Execute(db, "PRAGMA synchronous = NORMAL"));
  ASSIGN_OR_RETURN(list_, Kept(db, kList));
  ASSIGN_OR_RETURN(find_, Kept(db, kFind));
  ASSIGN_OR_RETURN(replace_, Kept(db, kReplace));
  ASSIGN_OR_RETURN(insert_, Kept(db, kInsert));
  ASSIGN_OR_RETURN(pages_, Kept(db, kPages));
  ASSIGN_OR_RETURN(drop_unused_, Kept(db, kDropUnused));
  ASSIGN_OR_RETURN(touch_, Kept(db, kTouch));
  RETURN_IF_ERROR(Execute(db, "SELECT 1 FROM sqlite_master"));  // which makes the log
  companions_.clear();
  for (absl::string_view suffix : kCompanions) {
    companions_.push_back(IdentifyFile(absl::StrCat(path_, suffix)));
  }
  return absl::OkStatus();
}

// Makes our tables in a file that has nothing in it; else sees that it has them and no others.
absl::Status MemoFile::CheckSchema() {
  sqlite3* db = db_.get();
  ASSIGN_OR_RETURN(Statement header,
                   Statement::Prepare(db,
                                      "SELECT application_id, user_version, (SELECT count(*) FROM "
                                      "sqlite_master) FROM pragma_application_id, "
                                      "pragma_user_version"));
  RETURN_IF_ERROR(header.Step().status());
  const int64_t id = header.Integer(0), version = header.Integer(1), objects = header.Integer(2);
  header.Reset();
  if (id == 0 && version == 0 && objects == 0) {
    const std::string create =
        absl::StrCat("PRAGMA encoding = 'UTF-8'; BEGIN IMMEDIATE; ", kMemoTable, "; ", kMemoIndex,
                     "; ", kMemoUseIndex, "; PRAGMA application_id = ", kApplicationId,
                     "; PRAGMA user_version = ", kVersion, "; COMMIT");
    absl::Status created = Execute(db, create.c_str());
    if (created.ok()) return absl::OkStatus();
    if (sqlite3_get_autocommit(db) == 0) created.Update(Execute(db, "ROLLBACK"));
    // Another process may have come first.
    ASSIGN_OR_RETURN(Statement any, Statement::Prepare(db, "SELECT 1 FROM sqlite_master"));
    ASSIGN_OR_RETURN(const bool made, any.Step());
    any.Reset();
    return made ? CheckSchema() : created;
  }
  if (id != kApplicationId || version != kVersion) {
    return absl::FailedPreconditionError(
        "it is a database, but no memo of this version of sqlite-lm: name a new file");
  }
  ASSIGN_OR_RETURN(Statement schema,
                   Statement::Prepare(db, "SELECT sql FROM sqlite_master ORDER BY rowid"));
  std::vector<std::string> objects_found;
  while (objects_found.size() < 4) {
    ASSIGN_OR_RETURN(const bool row, schema.Step());
    if (!row) break;
    ASSIGN_OR_RETURN(std::string sql, schema.Text(0));
    objects_found.push_back(std::move(sql));
  }
  if (objects_found == std::vector<std::string>{kMemoTable, kMemoIndex, kMemoUseIndex})
    return absl::OkStatus();
  return absl::FailedPreconditionError("it has another schema than ours: somebody changed it");
}

void MemoFile::NoteFailure(const absl::Status& status) {
  NoteTrouble(status);
  // Neither a lock nor a full disk: perhaps the file itself.
  if (!absl::IsUnavailable(status) && !absl::IsResourceExhausted(status)) CloseForAWhile(status);
}

std::optional<RememberedAnswer> MemoFile::Find(const MemoKey& key) {
  const FairMutexLock lock(&mutex_);
  if (!lock.held()) return std::nullopt;  // interrupted: no answer is wanted
  if (absl::Status open = EnsureOpen(); !open.ok()) {
    NoteTrouble(open);
    return std::nullopt;
  }
  absl::StatusOr<std::optional<RememberedAnswer>> found = Look(key);
  if (found.ok()) return *std::move(found);
  // What others lock, or memory has no room for, is generated; a file that cannot be read is opened
  // anew.
  if (!absl::IsUnavailable(found.status()) && !absl::IsResourceExhausted(found.status())) {
    NoteFailure(found.status());
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<RememberedAnswer>> MemoFile::Look(const MemoKey& key) {
  absl::Cleanup reset = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { find_.Reset(); };
  BindMemoKey(find_, key);
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, find_.Step());
    if (!row) return std::nullopt;
    ASSIGN_OR_RETURN(std::optional<MemoRow> entry, ReadMemoRow(find_));
    if (!entry.has_value()) continue;
    if (touched_.size() < kMostTouched) touched_.insert(find_.Integer(0));
    return std::move(entry->second);
  }
}

void MemoFile::Add(const MemoKey& key, const RememberedAnswer& answer) noexcept {
  try {
    absl::MutexLock lock(&pending_mutex_);
    const int64_t bytes = key.bytes() + answer.bytes();
    if (pending_bytes_ + bytes > kMostPendingBytes) {
      ++num_lost_;
      return;
    }
    forgotten_.erase(key);  // it is known again, and is what it was
    pending_.emplace_back(key, answer);
    pending_bytes_ += bytes;
    ++not_written_;
  } catch (...) {  // no memory: then it is generated again next time
  }
}

void MemoFile::Flush() noexcept {
  if (not_written_.load() == 0) return;
  try {
    {
      const FairMutexLock lock(&mutex_);
      if (!lock.held()) return;  // with the next one
      WritePending();
    }
    MakeRoom();
  } catch (...) {
  }
}

void MemoFile::WritePending() {
  if (MonotonicTime::Now() < next_write_) return;
  std::list<MemoRow> rows;
  int64_t bytes = 0;
  {
    absl::MutexLock lock(&pending_mutex_);
    rows.swap(pending_);
    std::swap(bytes, pending_bytes_);
    not_written_ -= static_cast<int64_t>(rows.remove_if([&](const MemoRow& row) {
      const bool forgotten = forgotten_.contains(row.first);
      if (forgotten) bytes -= row.first.bytes() + row.second.bytes();
      return forgotten;
    }));
    forgotten_.clear();
  }
  if (rows.empty()) return;
  // What is not written waits for the next time, in its order.
  absl::Cleanup put_back = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    next_write_ = MonotonicTime::Now() + kPause;
    absl::MutexLock lock(&pending_mutex_);
    pending_.splice(pending_.begin(), rows);
    pending_bytes_ += bytes;
  };
  absl::Status status = EnsureOpen();
  if (status.ok()) status = Write(rows);
  if (!status.ok()) return NoteFailure(status);
  NoteTrouble(status);
  not_written_ -= static_cast<int64_t>(rows.size());
  std::move(put_back).Cancel();
}

absl::Status MemoFile::Write(const std::list<MemoRow>& rows) {
  sqlite3* db = db_.get();
  RETURN_IF_ERROR(Execute(db, "BEGIN IMMEDIATE"));
  absl::Cleanup roll_back = [db] {
    if (sqlite3_get_autocommit(db) == 0) sqlite3_exec(db, "ROLLBACK", nullptr, nullptr, nullptr);
  };
  for (const MemoRow& row : rows) {
    // A row that no file takes must not be in the way of the others.
    if (BytesOf(row) > sqlite3_limit(db, SQLITE_LIMIT_LENGTH, -1)) continue;
    RETURN_IF_ERROR(WriteRow(row));
  }
  for (const int64_t id : touched_) RETURN_IF_ERROR(touch_.Bind(1, id).Run());
  RETURN_IF_ERROR(Execute(db, "COMMIT"));
  touched_.clear();
  return absl::OkStatus();
}

absl::Status MemoFile::WriteRow(const MemoRow& row) {
  BindMemoKey(replace_, row.first);
  RETURN_IF_ERROR(replace_.Run());
  BindMemoRow(insert_, row.first, row.second);
  return insert_.Run();
}

// For the others, whose answers must not wait for it.
void MemoFile::MakeRoom() {
  if (making_room_.exchange(true)) return;
  const absl::Cleanup done = [this] { making_room_ = false; };
  // The rest goes with the next ones: none has to wait for it.
  constexpr absl::Duration kMostTime = absl::Milliseconds(50);
  const MonotonicTime until = MonotonicTime::Now() + kMostTime;
  for (bool too_large = true; too_large && !Interrupted() && MonotonicTime::Now() < until;) {
    const FairMutexLock lock(&mutex_);
    too_large = lock.held() && DropUnused();
  }
}

// If the file is too large, takes some out of it. False where it was not, or nothing can be done.
bool MemoFile::DropUnused() {
  if (db_ == nullptr) return false;
  const absl::StatusOr<bool> row = pages_.Step();
  const int64_t bytes = row.ok() && *row ? pages_.Integer(0) * pages_.Integer(1) : 0;
  pages_.Reset();
  absl::Status dropped = row.status();
  if (dropped.ok() && bytes <= max_bytes_) return false;
  dropped.Update(dropped.ok() ? drop_unused_.Run() : absl::OkStatus());
  if (dropped.ok()) return sqlite3_changes(db_.get()) > 0;
  if (!absl::IsUnavailable(dropped)) NoteFailure(dropped);
  return false;
}

absl::StatusOr<int64_t> MemoFile::LastId() {
  if (fork_guard_.forked()) return ForkGuard::Error();
  const FairMutexLock lock(&mutex_);
  RETURN_IF_ERROR(lock.status());
  next_open_ = MonotonicTime::InfinitePast();
  WritePending();
  next_open_ = MonotonicTime::InfinitePast();
  RETURN_IF_ERROR(Named(EnsureOpen()));
  absl::StatusOr<Statement> last = Statement::Prepare(db_.get(), kLast);
  RETURN_IF_ERROR(Named(last.status()));
  RETURN_IF_ERROR(Named(last->Step().status()));
  return last->IsNull(0) ? std::numeric_limits<int64_t>::min() : last->Integer(0);
}

absl::StatusOr<std::vector<MemoFileRow>> MemoFile::Rows(MemoRange* range) {
  if (fork_guard_.forked()) return ForkGuard::Error();
  const FairMutexLock lock(&mutex_);
  RETURN_IF_ERROR(lock.status());
  RETURN_IF_ERROR(Named(EnsureOpen()));
  absl::Cleanup reset = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { list_.Reset(); };
  list_.Bind(1, range->after).Bind(2, range->last);
  std::vector<MemoFileRow> rows;
  int64_t bytes = 0;
  while (rows.size() < MemoPage::kEntries && bytes < MemoPage::kBytes) {
    const absl::StatusOr<bool> row = list_.Step();
    RETURN_IF_ERROR(Named(row.status()));
    if (!*row) {
      range->after = range->last;
      break;
    }
    const int64_t id = list_.Integer(0);
    // A damaged tree may lead back to where it has been, for ever.
    if (id <= range->after) return Named(StatusOf(db_.get(), SQLITE_CORRUPT));
    ASSIGN_OR_RETURN(std::optional<MemoRow> entry, ReadMemoRow(list_));
    if (entry.has_value()) bytes += BytesOf(*entry);
    range->after = id;
    rows.push_back({range->after, std::move(entry),
                    absl::FromUnixMillis(list_.Integer(kListCreated)),
                    absl::FromUnixMillis(list_.Integer(kListUsed))});
  }
  return rows;
}

// What waits to be written does no more, and what has been written since it was listed leaves.
absl::Status MemoFile::Forget(const MemoKey& key) {
  bool waits = false;  // the file is not to be had
  {
    absl::MutexLock lock(&pending_mutex_);
    waits = !pending_.empty();
    if (waits) forgotten_.insert(key);
  }
  if (!EnsureOpen().ok()) return absl::OkStatus();
  const absl::Cleanup reset = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { replace_.Reset(); };
  BindMemoKey(replace_, key);
  const absl::Status removed = Named(replace_.Run());
  return waits ? absl::OkStatus() : removed;
}

absl::Status MemoFile::Forget(int64_t id) {
  if (fork_guard_.forked()) return ForkGuard::Error();
  const FairMutexLock lock(&mutex_);  // nothing is on its way into the file
  RETURN_IF_ERROR(lock.status());
  if (id < 0) {
    const std::optional<MemoKey> key = ProcessMemo().Forget(owner_, -id);
    return key.has_value() ? Forget(*key) : absl::OkStatus();
  }
  next_open_ = MonotonicTime::InfinitePast();
  RETURN_IF_ERROR(Named(EnsureOpen()));
  absl::StatusOr<Statement> get = Statement::Prepare(db_.get(), kGet);
  RETURN_IF_ERROR(Named(get.status()));
  absl::StatusOr<bool> row = get->Bind(1, id).Step();
  RETURN_IF_ERROR(Named(row.status()));
  if (!*row) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::optional<MemoRow> entry, ReadMemoRow(*get));
  if (entry.has_value()) {
    entry->first.owner = owner_;
    ProcessMemo().Forget(entry->first);
  }
  get->Reset();
  absl::StatusOr<Statement> remove = Statement::Prepare(db_.get(), kDelete);
  RETURN_IF_ERROR(Named(remove.status()));
  return Named(remove->Bind(1, id).Run());
}

}  // namespace lm
