// MemoFile: the memo on disk, an SQLite database of its own that lm_settings('memo') names.
//
//   std::shared_ptr<MemoFile> file = MemoFile::Of("/var/lib/notes/memo.db");
//   RETURN_IF_ERROR(file->Open());              // to know whether it is one
//   Session session(engine, salt, MemoAccess{file->owner(), file});
//
// It has a connection of its own and writes short transactions, so it survives whatever becomes of
// the user's transactions and of the process. Any number of processes may use one file, and share
// what is in it.
//
// An answer is committed before it is given, if the file can be written then. If not (another
// process holds its lock for more than kBusyMs, the disk is full, the file is damaged or gone),
// no statement waits and nothing fails: answers are given all the same, queue here (at most
// kMostPendingBytes of them) and are tried again with an answer that is given kPause later or more,
// and when the last connection lets the file go. They are lost where the process is killed
// meanwhile, or the queue is full. Trouble() says so while it lasts. A commit is in the operating
// system's hands: losing power may take the last ones, never the file.
//
// What is in the file is bounded by bytes, and the answers that were not used for longest leave
// first, some with each commit, so that others come in between. One statement that writes answers
// goes on with that until the file is small enough, unless it is interrupted; then the statement
// that writes the next answer does. An answer counts as used when it came, and when a process last
// took it out of the file, as far as that has been written down (with the next answers, or when the
// file is let go). Room that becomes free is used again, but the file does not shrink.
//
// The file is untrusted input: one with any other schema than ours is refused, its triggers and
// views are never run, a row that does not fit its own seal counts as absent, and what the seal
// cannot tell CanBeAnswer() does. A file that was deleted or replaced while it was open is noticed
// at the next question or answer, and opened anew.
#ifndef LM_EXTENSION_MEMO_MEMO_FILE_H_
#define LM_EXTENSION_MEMO_MEMO_FILE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/base/fair_mutex.h"
#include "engine/base/file.h"
#include "engine/base/hash_map.h"
#include "engine/base/monotonic_time.h"
#include "engine/runtime/fork_guard.h"
#include "engine/runtime/memo.h"
#include "extension/host/statement.h"
#include "extension/memo/memo_row.h"

namespace lm {

// A row as it is in the file.
struct MemoFileRow {
  int64_t id = 0;
  std::optional<MemoRow> entry;  // nullopt: it is not ours, or damaged
  absl::Time created;
  absl::Time used;
};

// Thread-safe; one object a file and process.
class MemoFile : public MemoStore {
 public:
  static constexpr int64_t kDefaultBytes = int64_t{1} << 30;
  static constexpr int kBusyMs = 100;
  static constexpr absl::Duration kPause = absl::Seconds(1);
  static constexpr int64_t kMostPendingBytes = 64 << 20;

  // The object for a path, which is absolute and without symbolic links. It opens the file when it
  // is first needed. A forked child gets one of its own, unless another thread of its parent was
  // using the file when it forked.
  static std::shared_ptr<MemoFile> Of(const std::string& path);
  ~MemoFile() override;

  // Makes the file where there is none. FailedPrecondition for one that is no memo; whatever else
  // SQLite says.
  absl::Status Open();

  // How much the file may hold; the last word counts.
  void set_max_bytes(int64_t bytes) { max_bytes_ = bytes; }

  // The owner under which the memo in memory keeps the file's answers.
  const std::string& owner() const { return owner_; }

  std::optional<RememberedAnswer> Find(const MemoKey& key) override;
  void Add(const MemoKey& key, const RememberedAnswer& answer) noexcept override;
  void Flush() noexcept override;

  // What is wrong with the file, in words for a user; empty where nothing is.
  std::string Trouble() const;

  // What is in the file, in the order it came: the next MemoPage of *range, which begins behind it
  // then. (All of a memo, that of memory too, is listed by MemoListing.)
  absl::StatusOr<std::vector<MemoFileRow>> Rows(MemoRange* range);
  // The id of its last row, once what waits is written, if it can be.
  absl::StatusOr<int64_t> LastId();
  // Removes an entry of a MemoListing, from memory too.
  absl::Status Forget(int64_t id);

 private:
  struct Closer {
    void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
  };

  explicit MemoFile(std::string path);

  // In a forked child: closes its copy of the parent's connection. As long as it is open, SQLite
  // takes the parent's locks for this process's, and another connection here would have none when
  // the parent closes the file and deletes the log. False in the parent, and where the copy cannot
  // be closed.
  bool LeaveToParent() noexcept;
  absl::Status EnsureOpen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Prepare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckSchema() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::array<Statement*, 7> Statements() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return {&list_, &find_, &replace_, &insert_, &pages_, &drop_unused_, &touch_};
  }
  void Close() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CloseForAWhile(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::optional<RememberedAnswer>> Look(const MemoKey& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WritePending() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Forget(const MemoKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Write(const std::list<MemoRow>& rows) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteRow(const MemoRow& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeRoom() ABSL_LOCKS_EXCLUDED(mutex_);
  bool DropUnused() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteFailure(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Named(const absl::Status& status) const;
  void NoteTrouble(const absl::Status& status);

  const std::string path_;
  const std::string owner_;
  const ForkGuard fork_guard_;
  std::atomic<int64_t> max_bytes_{kDefaultBytes};
  std::atomic<int64_t> not_written_{0};  // rows added and not committed
  std::atomic<bool> making_room_{false};  // by some thread

  mutable absl::Mutex pending_mutex_ ABSL_ACQUIRED_AFTER(mutex_);
  std::list<MemoRow> pending_ ABSL_GUARDED_BY(pending_mutex_);
  int64_t pending_bytes_ ABSL_GUARDED_BY(pending_mutex_) = 0;
  HashSet<MemoKey> forgotten_ ABSL_GUARDED_BY(pending_mutex_);  // of pending_
  int64_t num_lost_ ABSL_GUARDED_BY(pending_mutex_) = 0;
  absl::Status trouble_ ABSL_GUARDED_BY(pending_mutex_);  // OK: none
  MonotonicTime next_log_ ABSL_GUARDED_BY(pending_mutex_) = MonotonicTime::InfinitePast();

  FairMutex mutex_;                                              // of the connection
  std::unique_ptr<sqlite3, Closer> db_ ABSL_GUARDED_BY(mutex_);  // null: not open
  // Of what is open, and of its log and shared memory.
  absl::StatusOr<FileIdentity> identity_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::StatusOr<FileIdentity>> companions_ ABSL_GUARDED_BY(mutex_);
  Statement list_ ABSL_GUARDED_BY(mutex_);
  Statement find_ ABSL_GUARDED_BY(mutex_);
  Statement replace_ ABSL_GUARDED_BY(mutex_);
  Statement insert_ ABSL_GUARDED_BY(mutex_);
  Statement pages_ ABSL_GUARDED_BY(mutex_);
  Statement drop_unused_ ABSL_GUARDED_BY(mutex_);
  Statement touch_ ABSL_GUARDED_BY(mutex_);
  std::set<int64_t> touched_ ABSL_GUARDED_BY(mutex_);  // rows used since that was last written
  MonotonicTime next_open_ ABSL_GUARDED_BY(mutex_) = MonotonicTime::InfinitePast();
  absl::Status not_open_ ABSL_GUARDED_BY(mutex_);  // why it is not opened before
  MonotonicTime next_write_ ABSL_GUARDED_BY(mutex_) = MonotonicTime::InfinitePast();
};

}  // namespace lm

#endif  // LM_EXTENSION_MEMO_MEMO_FILE_H_
