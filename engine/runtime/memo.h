// Memo: generations that need not be made again.
//
//   auto request = memo.Submit(generator, spec, {.owner = "file:/notes.db"});
//   (*request)->WaitFor(absl::InfiniteDuration());
//
// A prompt that was answered before, by the same model with the same options (MemoKey), is answered
// at once; one that is being generated is waited for instead of being generated twice (single
// flight), by whichever connection that has the same generator and gives it the same timeout_ms:
// the end of another engine, the refusal of a server that knows somebody else's key, or another's
// deadline, is nobody else's. Only answers are
// remembered, never errors. What is remembered in memory is bounded by bytes, and the longest
// unused goes first, but for a scan of more rows than there is room for, which keeps its beginning
// (memo_shelf.h); a MemoStore keeps it for longer.
//
// So are vectors: embeddings, and the scores of rerankers. They have bytes of their own, so that
// many of them push no answer out, and no store: they are quickly made again.
//
// A generation has the highest priority of those who wait for it.
//
// Who asks gets a Request of his own: cancelling it does not disturb the others who wait for the
// same generation. The last one to go stops it.
#ifndef LM_ENGINE_RUNTIME_MEMO_H_
#define LM_ENGINE_RUNTIME_MEMO_H_

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/base/cond_var.h"
#include "engine/base/hash_map.h"
#include "engine/runtime/generator.h"
#include "engine/runtime/memo_key.h"
#include "engine/runtime/memo_scan.h"
#include "engine/runtime/memo_shelf.h"
#include "engine/runtime/remembered_answer.h"
#include "engine/runtime/request.h"
#include "engine/runtime/salt_counts.h"

namespace lm {

// Where answers, but no vectors, are kept beyond the process. Thread-safe.
class MemoStore {
 public:
  virtual ~MemoStore() = default;

  // nullopt where there is none, or the store cannot tell. The answer is used only if it can be one
  // (Generator::CanBeAnswer); else there will be another one for the same key.
  virtual std::optional<RememberedAnswer> Find(const MemoKey& key) = 0;
  // Takes note of an answer; on the generator's thread, so it must neither wait nor throw.
  virtual void Add(const MemoKey& key, const RememberedAnswer& answer) noexcept = 0;
  // Makes what was added durable, if the store can: called before anybody gets such an answer.
  virtual void Flush() noexcept = 0;
};

// Whose part of the memo a client uses.
struct MemoAccess {
  std::string owner;  // sees its own answers only
  std::shared_ptr<MemoStore> store = nullptr;
  std::shared_ptr<MemoScan> scan = nullptr;  // whose rows are asked for; null: one row alone
};

struct MemoStats {
  int64_t hits = 0;    // answered from memory or from a store, vectors too
  int64_t shared = 0;  // waited for somebody else's generation
  int64_t misses = 0;
};

// One remembered generation, as lm_memo shows it.
struct MemoEntryInfo {
  int64_t id = 0;
  std::string model;  // MemoKey's
  std::string options;
  int64_t tokens = 0;  // prompt and answer
  int64_t hits = 0;
  int64_t bytes = 0;
  absl::Time created = absl::InfinitePast();  // infinitely long ago: not known
  absl::Time used = absl::InfinitePast();     // last
  std::string prompt = {};                    // MemoKey's; these two where they are asked for
  std::string answer = {};
  bool is_vector = false;  // then there is no answer
};

// Entries that are still to be listed: those with ids behind `after`, up to `last`.
struct MemoRange {
  int64_t after = 0;
  int64_t last = std::numeric_limits<int64_t>::max();

  bool done() const { return after >= last; }
};

// So much of a range is listed at once, in about a millisecond.
struct MemoPage {
  static constexpr size_t kEntries = 256;
  static constexpr int64_t kBytes = 1 << 20;
};

// Thread-safe.
class Memo {
 public:
  // Of answers, and of vectors.
  Memo(int64_t max_bytes, int64_t max_vector_bytes)
      : answers_(max_bytes), vectors_(max_vector_bytes) {}

  // As Generator::Submit, which it calls for what is not remembered.
  absl::StatusOr<std::shared_ptr<Request>> Submit(Generator& generator, RequestSpec spec,
                                                  const MemoAccess& access);

  // Remembers an answer that came another way; what is known already stays.
  void Add(const MemoKey& key, RememberedAnswer answer, const MemoAccess& access);

  // What is in memory of an owner's, in the order it came: those among the next MemoPage of
  // *range, which begins behind them then.
  std::vector<MemoEntryInfo> Entries(absl::string_view owner, MemoRange* range,
                                     bool texts = false) const;
  // The id of what came last.
  int64_t last_id() const;
  // What is in memory of an answer; an id of 0 where nothing is.
  struct Known {
    int64_t id = 0;    // of Entries
    int64_t hits = 0;  // since it came into memory
  };
  Known Find(const MemoKey& key) const;
  // Forgets one of Entries(owner), or an answer by its key.
  // The first says which it was.
  std::optional<MemoKey> Forget(absl::string_view owner, int64_t id);
  void Forget(const MemoKey& key);

  // Of what a salt asked of a model, by ModelInfo::identity.
  MemoStats Stats(const std::string& model, absl::string_view salt) const;
  struct Bytes {
    int64_t answers = 0;
    int64_t vectors = 0;
  };
  Bytes bytes() const;
  // The most that it remembers of answers.
  int64_t max_bytes() const;

 private:
  struct Entry {
    RememberedAnswer answer;
    int64_t id;
    int64_t hits;
    MemoShelf::Items::iterator place;
    absl::Time created;
    absl::Time used;
  };
  class Flight;
  // Of those who wait for one generation: its timeout_ms is that of each of them.
  struct FlightKey {
    MemoKey answer;
    int64_t timeout_ms;

    friend bool operator==(const FlightKey& a, const FlightKey& b) = default;
    template <typename H>
    friend H AbslHashValue(H h, const FlightKey& key) {
      return H::combine(std::move(h), key.answer, key.timeout_ms);
    }
  };
  using EntryMap = HashMap<MemoKey, Entry>;

  std::shared_ptr<Request> Hit(RequestSpec spec, const RememberedAnswer& answer);
  const RememberedAnswer* Recall(const MemoKey& key, const std::shared_ptr<MemoScan>& scan)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remember(const MemoKey& key, RememberedAnswer answer, const std::shared_ptr<MemoScan>& scan)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(EntryMap::iterator entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  MemoShelf& ShelfOf(const RememberedAnswer& answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return answer.is_vector() ? vectors_ : answers_;
  }
  // The generation of a key that is under way on this generator, or null.
  std::shared_ptr<Flight> FlightOf(const FlightKey& key, const Generator& generator)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Request> Join(const std::shared_ptr<Flight>& flight, RequestSpec spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  EntryMap entries_ ABSL_GUARDED_BY(mutex_);
  MemoShelf answers_ ABSL_GUARDED_BY(mutex_);
  MemoShelf vectors_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, const MemoKey*> by_id_ ABSL_GUARDED_BY(mutex_);
  int64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  // Those that others may join; of two generators for one key the first has it.
  HashMap<FlightKey, std::shared_ptr<Flight>> flights_ ABSL_GUARDED_BY(mutex_);
  CondVar decided_;                                                            // one of them is
  HashMap<std::string, SaltCounts<MemoStats>> stats_ ABSL_GUARDED_BY(mutex_);  // by model
};

// The process's. Never destroyed.
Memo& ProcessMemo();

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_MEMO_H_
