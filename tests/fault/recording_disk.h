// A disk that remembers each change to the files of a folder, in order, and what of it was synced:
// so that a test can see what it would hold, had the power failed after any of them.
//
//   RecordingDisk& disk = RecordingDisk::Get();
//   disk.Start(folder);
//   ... write files there ...
//   disk.Stop();
//   disk.Recover(n, &dice, other_folder);  // the power failed after n of disk.changes()
//
// It takes the place of open, fopen, write, pwrite, writev, ftruncate, fsync, fdatasync, rename and
// unlink in a program that links it; what is written through a map it does not see.
#ifndef LM_TESTS_FAULT_RECORDING_DISK_H_
#define LM_TESTS_FAULT_RECORDING_DISK_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace lm {

// Thread-safe.
class RecordingDisk {
 public:
  static RecordingDisk& Get();

  // REQUIRES: `folder` is there, empty, and its path has no symbolic link.
  void Start(const std::string& folder);
  void Stop();
  int64_t changes();

  // Writes into `folder`, made anew, what is left. Of each file what was synced, and of the later
  // writes nothing, the first ones, or some sectors of each; of the names that came, went and
  // changed since their folder was synced, the first so many.
  void Recover(int64_t changes, std::mt19937_64* dice, const std::string& folder);

  // Calls of the C library, made and remembered; -1 and errno as they have it.
  int Open(const char* path, int flags, mode_t mode);
  ssize_t Write(int fd, const void* bytes, size_t size);
  ssize_t WriteAt(int fd, const void* bytes, size_t size, off_t offset);
  int Truncate(int fd, off_t size);
  int Sync(int fd, bool data_only);
  int Rename(const char* from, const char* to, unsigned flags);
  int Unlink(const char* path);

 private:
  enum class Kind { kCreate, kWrite, kTruncate, kSync, kRename, kUnlink, kSyncFolder };
  struct Change {
    Kind kind;
    int file = 0;           // of kCreate, kWrite, kTruncate, kSync
    int64_t offset = 0;     // or the size after kTruncate
    std::string text = {};  // bytes of kWrite; name of kCreate, kRename, kUnlink
    std::string to = {};    // of kRename
  };

  bool IsWatched(const std::string& path) const;
  // The number of the watched file behind a descriptor; -1: it is none.
  int FileOf(int fd) const;
  static void Apply(const Change& change, std::mt19937_64* dice, std::string* content);

  std::mutex mutex_;
  std::string folder_;  // ends with '/'; empty: nothing is watched
  std::vector<Change> changes_;
  int num_files_ = 0;
  std::map<std::pair<dev_t, ino_t>, int> files_;
};

}  // namespace lm

#endif  // LM_TESTS_FAULT_RECORDING_DISK_H_
