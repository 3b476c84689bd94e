// PrefixLoader reads stored prefixes straight into the memory that they are computed in, on threads
// of its own: the engine's thread does not wait for the disk.
//
//   PrefixLoader loader(threads, [] { ... tell the engine's thread ... });
//   loader.Begin(number, {{file, piece, block}, ...}, stored->Files());
//   ...
//   for (PrefixLoader::Done& done : loader.TakeDone()) ...  // all is there, or done.status
#ifndef LM_ENGINE_CACHE_PREFIX_LOADER_H_
#define LM_ENGINE_CACHE_PREFIX_LOADER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "engine/cache/prefix_store.h"

namespace lm {

// Thread-safe.
class PrefixLoader {
 public:
  // `wake` is called, by one of the threads, when a load is done. REQUIRES: threads >= 1.
  PrefixLoader(int threads, std::function<void()> wake);
  // Waits for what is being read.
  ~PrefixLoader();
  PrefixLoader(const PrefixLoader&) = delete;
  PrefixLoader& operator=(const PrefixLoader&) = delete;

  // Has a thread do work that makes later loads faster; what the work throws is dropped.
  void Prepare(std::function<void()> work);

  struct Read {
    std::shared_ptr<const StoredFile> file;
    size_t piece = 0;
    absl::Span<char> out;  // of the piece's size; not used otherwise until the load is done
  };
  // Has the pieces read, and compared with their digests. `used` are all files of the prefix, read
  // or not, each behind what it goes on from: they count as used now. The number is the caller's.
  void Begin(int64_t number, std::vector<Read> reads,
             std::vector<std::shared_ptr<const StoredFile>> used = {});

  struct Done {
    int64_t number = 0;
    absl::Status status = {};                     // the first error of the reads
    std::shared_ptr<const StoredFile> file = {};  // that the error is about
  };
  std::vector<Done> TakeDone();
  // Waits until nothing is read any more, and forgets the loads that are done.
  void Drain() noexcept;

 private:
  struct Load {
    std::vector<Read> reads;
    std::vector<std::string> used;  // paths
    size_t next = 0;      // to be read
    size_t finished = 0;  // reads
    Done done;
  };
  void StartThreads() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();

  const int num_threads_;
  const std::function<void()> wake_;
  absl::Mutex mutex_;
  std::deque<std::unique_ptr<Load>> loads_ ABSL_GUARDED_BY(mutex_);  // the first ones begun
  std::vector<Done> done_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> work_ ABSL_GUARDED_BY(mutex_);  // of Prepare; null: none, or begun
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // begun with the first load, or Prepare
};

}  // namespace lm

#endif  // LM_ENGINE_CACHE_PREFIX_LOADER_H_
