// BlockManager gives sequences their part of the cache: from the prefix tree what is computed
// already, from the pools the rest, from the tree's oldest leaves when a pool is empty.
//
// It moves no memory itself: it notes down, in order, which blocks have to be copied or cleared
// (TakeOps), and the engine has that done before the next step's tokens. Until then no block that
// it hands out is read.
#ifndef LM_ENGINE_RUNTIME_BLOCK_MANAGER_H_
#define LM_ENGINE_RUNTIME_BLOCK_MANAGER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/cache/kv_block_pool.h"
#include "engine/cache/prefix_tree.h"
#include "engine/model/language_model.h"
#include "engine/runtime/block_owners.h"

namespace lm {

class BlockManager;

// A sequence's blocks of each class: blocks[c][i] holds its tokens [i * kKvBlockTokens, (i + 1) *
// kKvBlockTokens).
//   blocks[0], full attention's:
//     [0, lease.blocks().size())  full blocks of the prefix tree, pinned by the lease: only read,
//                                 but that MtpDrafter writes its own layer's last token there
//     [.., blocks[0].size())      the sequence's own, one reference each; the next tokens go there
//   blocks[c], a window's: one reference each; -1 for a block that no token will see again
// And the sequence's slot of recurrent state. The destructor gives all of them back.
struct BlockTable {
  BlockTable() = default;
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;
  ~BlockTable();

  BlockManager* manager = nullptr;  // null: empty
  PrefixTree::Lease lease;
  std::vector<std::vector<int32_t>> blocks;
  int32_t state = -1;
  int32_t aside = -1;  // a slot that has the state before the step, see BlockManager::SetAside
  uint64_t began = 0;  // PrefixTree::clock() when it was matched
};

// Whether a sequence's state is kept where its tokens are published: not; in the place, where no
// slot is free, of a snapshot that nobody has begun with since the sequence began; or of any.
enum class Snapshot { kNone, kIfSpare, kNeeded };

// Holds a snapshot of a state: its slot is not used for another one meanwhile.
class HeldState {
 public:
  HeldState() = default;
  // REQUIRES: the pool outlives this; the slot has a reference.
  HeldState(KvBlockPool* pool, int32_t slot);
  HeldState(HeldState&& other) noexcept { *this = std::move(other); }
  HeldState& operator=(HeldState&& other) noexcept;
  ~HeldState() { Drop(); }

  int32_t slot() const { return slot_; }  // -1: none

 private:
  void Drop();

  KvBlockPool* pool_ = nullptr;
  int32_t slot_ = -1;
};

// Adds the table's blocks of its first `tokens` tokens to those of the sequence that was appended
// to *tables last.
void AppendBlocks(const BlockTable& table, int64_t tokens, StepTables* tables);

// Not thread-safe: the engine's thread owns it. REQUIRES: outlives every BlockTable it filled.
class BlockManager {
 public:
  // Without `share`, nothing is ever found in or put into the prefix tree.
  BlockManager(const CacheShape& shape, bool share);

  // Begins an empty table with the longest cached prefix of `tokens`, `limit` tokens of it at most.
  // Returns its length. The lease may end in the middle of a block: call Adopt before Grow.
  int64_t Match(PrefixOwner owner, absl::Span<const int32_t> tokens, int64_t limit,
                BlockTable* table);
  // Makes a matched table writable: a partly matched last block becomes a copy, a matched snapshot
  // the sequence's state. Returns how many tokens of the match are kept: without the partly matched
  // block, or none, where there is no memory for a copy. Nothing where there is no slot for a
  // state.
  std::optional<int64_t> Adopt(absl::string_view salt, BlockTable* table);
  // Gives the table, which has whole blocks and its state, the blocks that the first `tokens`
  // tokens leave behind: of windows those that are still seen. False where there is no room; then
  // the table is to be released.
  bool MakeRoomForPrefix(absl::string_view salt, int64_t tokens, BlockTable* table);
  // Takes blocks until the table has room for `tokens` tokens, evicting where it must. False where
  // memory ends before; the table keeps what it got.
  bool Grow(absl::string_view salt, int64_t tokens, BlockTable* table);
  // Puts the computed `tokens` into the tree and lets the table use the tree's blocks for the full
  // ones. The last, partial block is put there too if `partial`; the sequence may write on in it.
  // With a snapshot, so is a copy of its state, if there is memory for one. REQUIRES: then partial.
  void Publish(PrefixOwner owner, absl::Span<const int32_t> tokens, bool partial, Snapshot snapshot,
               BlockTable* table);
  // Gives back blocks of windows that no token from position `computed` on sees.
  void LeaveBehind(int64_t computed, BlockTable* table);
  // Gives back the blocks of tokens from position `tokens` on. REQUIRES: they are not the lease's.
  void Truncate(int64_t tokens, BlockTable* table);
  // Has the table's state copied into another slot, before the next step's tokens, so that Rewind
  // can put it back. False where there is no slot: the oldest snapshots give up theirs only where
  // many are kept.
  bool SetAside(BlockTable* table);
  // Puts back the state that was set aside; KeepState gives it up.
  void Rewind(BlockTable* table);
  void KeepState(BlockTable* table);
  void Release(BlockTable* table);

  // Of a matched table: the snapshot that it ends with, if it does.
  HeldState HoldSnapshot(const BlockTable& table);

  // Tokens that Match would find.
  int64_t MatchLength(PrefixOwner owner, absl::Span<const int32_t> tokens) const;
  // Whether the tree holds the table's last block too, which then Evict would not free.
  bool SharesTail(const BlockTable& table) const;

  // The operations to be done, in this order, before the next step's tokens.
  std::vector<CacheOp> TakeOps();
  // An operation failed: what any block holds is not known. Each is cleared before it is handed out
  // again.
  void Distrust();

  // What is cached for a salt that will not ask again goes first.
  void Forget(absl::string_view salt) { tree_.Forget(salt); }

  std::vector<PrefixTree::Run> CachedRuns(absl::string_view salt) const { return tree_.Runs(salt); }

  const CacheShape& shape() const { return shape_; }
  // Of full attention.
  int32_t num_blocks() const { return pools_[0].num_blocks(); }
  int32_t num_free() const { return pools_[0].num_free(); }
  int64_t num_cached() const { return tree_.num_blocks(); }
  int64_t num_evictable() const { return tree_.num_evictable(); }
  // Whether Adopt could get a slot for a matched table, whose own snapshot stays.
  bool HasStateFor(const BlockTable& table) const {
    return states_.num_free() + tree_.num_states() > (table.lease.state() >= 0 ? 1 : 0);
  }
  // Bytes of all classes and states: that are free, and that the tree holds.
  int64_t free_bytes() const;
  int64_t cached_bytes() const;
  // Internal where blocks are lost. REQUIRES: all tables in use are listed.
  absl::Status CheckIntegrity(absl::Span<const BlockTable* const> tables) const;

 private:
  std::vector<PrefixTree::WindowedPool> WindowedPools();
  std::optional<int32_t> Allocate(size_t cache_class, absl::string_view salt);
  // A free slot, or that of a snapshot that was used `before` that time.
  std::optional<int32_t> AllocateState(uint64_t before = std::numeric_limits<uint64_t>::max());
  bool CopyTail(absl::string_view salt, int32_t tokens, BlockTable* table);

  const CacheShape shape_;
  const bool share_;
  std::vector<KvBlockPool> pools_;  // of each class
  KvBlockPool states_;
  PrefixTree tree_;
  BlockOwners owners_;
  std::vector<CacheOp> ops_;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_BLOCK_MANAGER_H_
