// PrefixStore: a folder in which what was computed of prompts outlives the process, for one model.
//
//   PrefixStore store(options);
//   std::shared_ptr<const StoredPrefix> known = store.Load(salt, prompt);  // null: nothing is
//   ...
//   if (std::optional<int64_t> begin = store.Wants(salt, used_twice)) {
//     store.Write(salt, used_twice, *begin, blocks_from_there);  // behind, by a thread
//   }
//
// Each file (prefix_file.h) goes on from where others end, so that a prefix is made of several.
// What one salt has stored is invisible to others; what belongs to a connection's own database in
// memory is not stored at all. The folder may be used by several processes, and any of them may be
// killed at any time. It holds `max_bytes`: what was used longest ago goes.
//
// What is wrong with the folder, a file or the disk is no reason to fail: state() says it.
#ifndef LM_ENGINE_CACHE_PREFIX_STORE_H_
#define LM_ENGINE_CACHE_PREFIX_STORE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/base/hash_map.h"
#include "engine/cache/prefix_file.h"

namespace lm {

// The blocks of a prompt's first `tokens` tokens, one behind the other; the last may be begun only.
struct StoredPrefix {
  int64_t tokens = 0;
  std::vector<char> data = {};
};

struct PrefixStoreOptions {
  std::string folder = {};
  std::string model = {};  // all that a block's bytes depend on beside the tokens
  int64_t block_bytes = 0;
  int64_t block_tokens = 0;
  int64_t max_bytes = int64_t{4} << 30;  // of the folder, whatever the model
};

// Thread-safe.
class PrefixStore {
 public:
  // Tokens that a file has at least.
  static constexpr int64_t kLeastTokens = 64;
  // What may wait to be written; beyond that nothing is.
  static constexpr int64_t kMostQueued = int64_t{512} << 20;

  explicit PrefixStore(PrefixStoreOptions options);
  // Writes what waits to be written.
  ~PrefixStore();
  PrefixStore(const PrefixStore&) = delete;
  PrefixStore& operator=(const PrefixStore&) = delete;

  // The longest stored prefix of `tokens` that leaves one of them. Reads files: takes as long as
  // the disk. What was given is not given again for a minute, but to who asks while others have it.
  std::shared_ptr<const StoredPrefix> Load(absl::string_view salt,
                                           absl::Span<const int32_t> tokens);

  // Whether these tokens are worth a file; from which token on, that begins a block, if so.
  std::optional<int64_t> Wants(absl::string_view salt, absl::Span<const int32_t> tokens);
  // Has their blocks [begin / block_tokens, ..) written.
  void Write(absl::string_view salt, absl::Span<const int32_t> tokens, int64_t begin,
             std::vector<char> data);
  // Waits until what was to be written is, or cannot be.
  void Flush();

  // Of a salt: tokens of each file's prefix, bytes of the file.
  struct Listed {
    std::vector<int32_t> tokens;
    int64_t begin = 0;
    int64_t bytes = 0;
  };
  std::vector<Listed> List(absl::string_view salt);
  // "3 prefixes", and what was refused or is wrong.
  std::string state();

 private:
  struct Entry {
    PrefixHead head;
    std::string path;
    bool pending = false;  // not written yet
    absl::Time given = absl::InfinitePast();
  };
  struct Job {
    std::string path;
    PrefixDescription description;
    std::vector<char> data;
  };
  // A file, and up to which token of those asked for it is of use.
  struct Piece {
    Entry* entry;
    int64_t end;
  };

  // So many tokens take, and of so many those in whole blocks.
  int64_t Blocks(int64_t tokens) const {
    return (tokens + options_.block_tokens - 1) / options_.block_tokens;
  }
  int64_t WholeBlocks(int64_t tokens) const {
    return tokens / options_.block_tokens * options_.block_tokens;
  }
  bool Keeps(absl::string_view salt) const;
  std::string OwnerOf(absl::string_view salt) const;
  std::string PathOf(const PrefixDescription& description) const;
  void Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Note(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Piece> Pieces(const std::string& owner, absl::Span<const int32_t> tokens,
                            bool pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();
  void MakeRoom();

  const PrefixStoreOptions options_;
  absl::Mutex mutex_;
  HashMap<std::string, std::unique_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);  // by path
  HashSet<std::string> refused_ ABSL_GUARDED_BY(mutex_);                          // paths
  absl::Time looked_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::weak_ptr<const StoredPrefix> last_ ABSL_GUARDED_BY(mutex_);  // given
  std::vector<int32_t> last_tokens_ ABSL_GUARDED_BY(mutex_);
  std::string last_owner_ ABSL_GUARDED_BY(mutex_);
  std::string trouble_ ABSL_GUARDED_BY(mutex_);
  absl::Time writes_again_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);  // the first is being written
  int64_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread writer_;  // begun with the first job, by who holds the mutex
};

}  // namespace lm

#endif  // LM_ENGINE_CACHE_PREFIX_STORE_H_
