// MemoFile: the memo on disk, an SQLite database of its own that lm_settings('memo') names.
//
//   ASSIGN_OR_RETURN(std::shared_ptr<MemoFile> file, MemoFile::Open("/var/lib/notes/memo.db"));
//   Session session(engine, salt, MemoAccess{file->owner(), file});
//
// It has a connection of its own and writes short transactions, so it survives whatever becomes of
// the user's transactions and of the process: an answer is committed before anybody gets it. Any
// number of processes may use one file. Those who name the same file share what is in it.
//
// The file is untrusted input: one with any other schema than ours is refused, its triggers and
// views are never run, and a row that does not fit its own seal counts as absent. The seal is a
// digest without a key: it notices damage. Against forgery there is CanBeAnswer: who may write the
// file chooses among the answers that the model could have given, and nothing beyond.
#ifndef LM_EXTENSION_MEMO_FILE_H_
#define LM_EXTENSION_MEMO_FILE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/runtime/fork_guard.h"
#include "engine/runtime/memo.h"
#include "extension/owned_statement.h"

namespace lm {

// Thread-safe; one object a file and process.
class MemoFile : public MemoStore {
 public:
  // Makes the file where there is none. FailedPrecondition for one that is no memo.
  static absl::StatusOr<std::shared_ptr<MemoFile>> Open(const std::string& path);
  ~MemoFile() override;

  // Whom the memo in memory knows the file's users as.
  const std::string& owner() const { return owner_; }

  absl::StatusOr<std::optional<RememberedAnswer>> Find(const MemoKey& key) override;
  void Add(const MemoKey& key, const RememberedAnswer& answer) noexcept override;
  void Flush() noexcept override;

  // What is in the file, in the order it came; hits are this process's.
  absl::StatusOr<std::vector<MemoEntryInfo>> Entries();
  // Removes one of them, from memory too.
  absl::Status Forget(int64_t id);

 private:
  struct Closer {
    void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
  };
  using Entry = std::pair<MemoKey, RememberedAnswer>;

  explicit MemoFile(std::string path);

  absl::Status Prepare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckSchema() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Run(const char* sql) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<OwnedStatement> Statement(const char* sql) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Error(int code) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Write(const std::vector<Entry>& entries) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WritePending() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const std::string owner_;
  const ForkGuard fork_guard_;
  std::atomic<int64_t> not_written_{0};  // entries added and not committed

  absl::Mutex pending_mutex_ ABSL_ACQUIRED_AFTER(mutex_);
  std::vector<Entry> pending_ ABSL_GUARDED_BY(pending_mutex_);

  absl::Mutex mutex_;  // of the connection
  std::unique_ptr<sqlite3, Closer> db_ ABSL_GUARDED_BY(mutex_);
  OwnedStatement find_ ABSL_GUARDED_BY(mutex_);
  OwnedStatement replace_ ABSL_GUARDED_BY(mutex_);
  OwnedStatement insert_ ABSL_GUARDED_BY(mutex_);
  absl::Time next_write_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);  // not OK: why the file cannot be used any more
};

}  // namespace lm

#endif  // LM_EXTENSION_MEMO_FILE_H_
