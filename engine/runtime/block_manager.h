// BlockManager gives sequences their KV blocks: from the prefix tree what is computed already, from
// the pool the rest, from the tree's oldest leaves when the pool is empty.
//
// It moves no memory itself: what has to be copied or cleared it notes down, in order, and the
// engine carries it out before the next forward pass. Until then no block it hands out is read.
#ifndef LM_ENGINE_RUNTIME_BLOCK_MANAGER_H_
#define LM_ENGINE_RUNTIME_BLOCK_MANAGER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/cache/kv_block_pool.h"
#include "engine/cache/prefix_tree.h"

namespace lm {

class BlockManager;

// A sequence's blocks: blocks[i] holds its tokens [i * kKvBlockTokens, (i + 1) * kKvBlockTokens).
//   [0, lease.blocks().size())  full blocks of the prefix tree, pinned by the lease: only read
//   [.., blocks.size())         the sequence's own, one reference each; the next tokens go there
// Gives them back when it goes.
struct BlockTable {
  BlockTable() = default;
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;
  ~BlockTable();

  BlockManager* manager = nullptr;  // null: empty
  PrefixTree::Lease lease;
  std::vector<int32_t> blocks;
};

// Copies the first `tokens` tokens of block `from` to `to`; or, where from is -1, clears `to`.
struct BlockOp {
  int32_t from = -1;
  int32_t to = 0;
  int32_t tokens = 0;
};

// How many blocks `tokens` tokens need.
int32_t BlocksFor(int64_t tokens);

// Not thread-safe: the engine's thread owns it. REQUIRES: outlives every BlockTable it filled.
class BlockManager {
 public:
  // Without `share`, nothing is ever found in or put into the prefix tree.
  BlockManager(int32_t num_blocks, bool share);

  // Begins an empty table with the longest cached prefix of `tokens`, `limit` tokens of it at most.
  // Returns its length. The lease may end in the middle of a block: call Adopt before Grow.
  int64_t Match(absl::string_view salt, absl::Span<const int32_t> tokens, int64_t limit,
                BlockTable* table);
  // Makes a matched table writable: a partly matched last block becomes a copy. Returns how many
  // tokens of the match are kept (without the partly matched block where there is none free).
  int64_t Adopt(absl::string_view salt, BlockTable* table);
  // Takes blocks until the table has room for `tokens` tokens, evicting where it must. False where
  // memory ends before; the table keeps what it got.
  bool Grow(absl::string_view salt, int64_t tokens, BlockTable* table);
  // Puts the computed `tokens` into the tree and lets the table use the tree's blocks for the full
  // ones. The last, partial block is put there too if `partial`; the sequence may write on in it.
  void Publish(absl::string_view salt, absl::Span<const int32_t> tokens, bool partial,
               BlockTable* table);
  void Release(BlockTable* table);

  // Tokens that Match would find.
  int64_t MatchLength(absl::string_view salt, absl::Span<const int32_t> tokens) const;
  // Whether the tree holds the table's last block too, which then Evict would not free.
  bool SharesTail(const BlockTable& table) const;

  // What is to be done, in this order, before the next forward pass.
  std::vector<BlockOp> TakeOps();
  // An operation failed: what any block holds is not known, until it is cleared for who gets it
  // next.
  void Distrust();

  std::vector<PrefixTree::Run> CachedRuns(absl::string_view salt) const { return tree_.Runs(salt); }

  int32_t num_blocks() const { return pool_.num_blocks(); }
  int32_t num_free() const { return pool_.num_free(); }
  int64_t num_cached() const { return tree_.num_nodes(); }
  int64_t num_evictable() const { return tree_.num_evictable(); }
  // Internal where blocks are lost. REQUIRES: all tables in use are listed.
  absl::Status CheckIntegrity(absl::Span<const BlockTable* const> tables) const;

 private:
  std::optional<int32_t> Allocate(absl::string_view salt);

  const bool share_;
  KvBlockPool pool_;
  PrefixTree tree_;
  // Whose data a block may hold; empty optional: nobody's, it is zero as at first.
  std::vector<std::optional<std::string>> owners_;
  std::vector<bool> distrusted_;  // blocks that may hold anybody's data, whatever owners_ says
  std::vector<BlockOp> ops_;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_BLOCK_MANAGER_H_
