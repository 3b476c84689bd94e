// PrefixStore: a folder in which what was computed of prompts outlives the process, and the room
// that it has in memory, for one model.
//
//   PrefixStore store(options);
//   const PrefixKey key = PrefixStore::KeyOf(salt, adapters);
//   std::shared_ptr<const StoredPrefix> known = store.Find(key, prompt);  // null: nothing is
//   ... read its parts (PrefixLoader) ...
//   if (std::optional<int64_t> begin = store.Wants(key, used_twice)) {
//     store.Write(key, used_twice, *begin, data);  // of store.Layout(*begin, tokens); behind
//   }
//
// Each file (prefix_file.h) goes on from where others end, so that a prefix is made of several.
// What one salt has stored is invisible to others; what belongs to a connection's own database in
// memory is not stored at all. The folder may be used by several processes, and any of them may be
// killed at any time. It holds `max_bytes`, and in passing a 64th more for each further store that
// writes to it; when it is full, what was used longest ago goes, a 16th at once. What is there
// under names that are none of these files', or does not begin like one, is left alone.
//
// Of a model with windows or states a prefix ends where a file does: only there are the blocks of
// its windows, and its state.
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
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/base/cond_var.h"
#include "engine/base/hash_map.h"
#include "engine/base/monotonic_time.h"
#include "engine/cache/prefix_file.h"

namespace lm {

// A prompt uses the stored prefixes of its own key alone.
struct PrefixKey {
  std::string owner;     // by the salt; empty: nothing is stored
  std::string adapters;  // that it is computed with: by what they contain, and how much of each

  friend bool operator==(const PrefixKey&, const PrefixKey&) = default;
};

// A file of the folder.
struct StoredFile {
  std::string path;
  PrefixHead head;
};

// Where a prompt's first `tokens` tokens are to be read.
struct StoredPrefix {
  // A block, or the state.
  struct Part {
    std::shared_ptr<const StoredFile> file;
    size_t piece = 0;  // of head.pieces
    int32_t cache_class = 0;
    int64_t index = 0;  // of the prompt's blocks of the class
  };
  int64_t tokens = 0;
  std::vector<Part> parts = {};  // of one file after the other

  std::vector<std::shared_ptr<const StoredFile>> Files() const;
};

struct PrefixStoreOptions {
  // The first class, and no other, has a window of 0.
  struct CacheClass {
    int64_t window = 0;  // how many tokens the layers of the class see; 0: all
    int64_t block_bytes = 0;
  };

  std::string folder = {};
  std::string model = {};  // names all that a block's bytes depend on beside tokens and adapters
  std::vector<CacheClass> classes = {};
  int64_t state_bytes = 0;  // 0: there are no states
  int64_t block_tokens = 0;
  int64_t max_bytes = int64_t{4} << 30;  // of the folder, whatever the model
};

// Thread-safe.
class PrefixStore {
 public:
  // A prefix has at least so many tokens, and so has a file, beyond the files that it goes on from.
  static constexpr int64_t kLeastTokens = 64;
  // Bytes that may wait to be written; a prefix beyond that is not written.
  static constexpr int64_t kMostQueued = int64_t{512} << 20;
  // Stands for the class of a piece that is a state.
  static constexpr int32_t kState = -1;

  explicit PrefixStore(PrefixStoreOptions options);
  // Writes what waits to be written.
  ~PrefixStore();
  PrefixStore(const PrefixStore&) = delete;
  PrefixStore& operator=(const PrefixStore&) = delete;

  // The key has no owner where nothing is stored of the salt.
  static PrefixKey KeyOf(absl::string_view salt, absl::string_view adapters = "");

  // Finds out, now and then, which files have come and gone. Reads their heads: takes as long as
  // the disk. The methods below tell what was found then. Where another thread looks for the first
  // time, waits for it.
  void Look();

  // The tokens of the longest stored prefix, of any key.
  int64_t MostTokens();
  // The longest stored prefix of `tokens` that leaves one of them; null: none.
  std::shared_ptr<const StoredPrefix> Find(const PrefixKey& key, absl::Span<const int32_t> tokens);
  // A file's blocks were not what its head says: the store drops the file. Reads the head again
  // first: another process may have put a file of the same tokens in its place, which differs in
  // what lies behind the tokens in the last block.
  void Refuse(const std::shared_ptr<const StoredFile>& file, const absl::Status& why);

  // Whether these tokens are worth a file, and from which token on, which begins a block. With
  // `asked`, a few more than are stored already are worth one too.
  std::optional<int64_t> Wants(const PrefixKey& key, absl::Span<const int32_t> tokens,
                               bool asked = false);
  // The pieces of a file of the tokens [begin, tokens), in order.
  struct Piece {
    int32_t cache_class = 0;
    int64_t index = 0;  // of the sequence's blocks of the class
    int64_t bytes = 0;
  };
  std::vector<Piece> Layout(int64_t begin, int64_t tokens) const;
  // Has such a file written: `data` are its pieces, one behind the other.
  void Write(const PrefixKey& key, absl::Span<const int32_t> tokens, int64_t begin,
             std::vector<char> data);
  // Waits, for `timeout` at most, until nothing waits to be written. False where that is not so.
  bool Flush(absl::Duration timeout = absl::InfiniteDuration());

  // Of a salt: tokens of each file's prefix, bytes of the file.
  struct Listed {
    std::vector<int32_t> tokens;
    int64_t begin = 0;
    int64_t bytes = 0;
    std::string adapters = {};
  };
  std::vector<Listed> List(absl::string_view salt);
  // "3 prefixes", and what was refused or is wrong.
  std::string state();

 private:
  struct Entry {
    std::shared_ptr<const StoredFile> file;
    bool pending = false;  // not written yet
    const PrefixDescription& description() const { return file->head.description; }
  };
  struct Job {
    std::string path;
    PrefixDescription description;
    std::vector<std::string> goes_on_from = {};  // paths
    std::vector<char> data;
  };
  // A file of a chain, and up to which token of the prompt it is of use.
  struct Link {
    const Entry* entry;
    int64_t end;
  };

  // The blocks of `tokens` tokens; and how many of the tokens fill whole blocks.
  int64_t Blocks(int64_t tokens) const {
    return (tokens + options_.block_tokens - 1) / options_.block_tokens;
  }
  int64_t WholeBlocks(int64_t tokens) const {
    return tokens / options_.block_tokens * options_.block_tokens;
  }
  // The block before which no token of a window at `tokens` lies.
  int64_t FirstInWindow(int64_t window, int64_t tokens) const;
  bool ends_with_files() const { return options_.classes.size() > 1 || options_.state_bytes > 0; }
  std::string PathOf(const PrefixDescription& description) const;
  bool Fits(const PrefixHead& head) const;
  void Note(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Link> Chain(const PrefixKey& key, absl::Span<const int32_t> tokens, bool pending)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const Entry* Longest(const PrefixKey& key, absl::Span<const int32_t> tokens, bool pending)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Link> ChainToAnEnd(const PrefixKey& key, absl::Span<const int32_t> tokens,
                                 bool pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddParts(absl::Span<const Link> chain, StoredPrefix* stored) const;
  std::vector<absl::Span<const char>> Cut(const Job& job) const;
  void Run();
  void MakeRoom(int64_t written);

  const PrefixStoreOptions options_;
  absl::Mutex mutex_;
  HashMap<std::string, std::unique_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);  // by path
  HashSet<std::string> refused_ ABSL_GUARDED_BY(mutex_);                          // paths
  CondVar done_;                                  // with a look, or a job
  bool looking_ ABSL_GUARDED_BY(mutex_) = false;  // a thread is in Look
  MonotonicTime looked_ ABSL_GUARDED_BY(mutex_) = MonotonicTime::InfinitePast();
  std::string trouble_ ABSL_GUARDED_BY(mutex_);  // why nothing was written; until something is
  std::string refusal_ ABSL_GUARDED_BY(mutex_);  // why the last file was that was refused
  MonotonicTime writes_again_ ABSL_GUARDED_BY(mutex_) = MonotonicTime::InfinitePast();
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);  // the first is being written
  int64_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread writer_;  // begun with the first job, under mutex_
  int64_t room_ = 0;    // the writer's: bytes to be written before it looks what the folder holds
};

}  // namespace lm

#endif  // LM_ENGINE_CACHE_PREFIX_STORE_H_
