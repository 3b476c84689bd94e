#include "engine/runtime/block_manager.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

std::vector<KvBlockPool> MakePools(const CacheShape& shape) {
  std::vector<KvBlockPool> pools;
  for (const CacheClass& c : shape.classes) pools.emplace_back(c.num_blocks);
  return pools;
}

}  // namespace

BlockTable::~BlockTable() {
  if (manager != nullptr) manager->Release(this);
}

void AppendBlocks(const BlockTable& table, int64_t tokens, StepTables* tables) {
  const int32_t used = BlocksFor(tokens);  // a table may have room for more
  for (size_t c = 0; c < table.blocks.size(); ++c) {
    tables->blocks[c].insert(tables->blocks[c].end(), table.blocks[c].begin(),
                             table.blocks[c].begin() + used);
  }
}

BlockManager::BlockManager(const CacheShape& shape, bool share)
    : shape_(shape),
      share_(share),
      pools_(MakePools(shape)),
      states_(shape.num_states),
      tree_(&pools_[0], kKvBlockTokens, WindowedPools(), shape.recurrent() ? &states_ : nullptr),
      owners_(shape) {}

std::vector<PrefixTree::WindowedPool> BlockManager::WindowedPools() {
  std::vector<PrefixTree::WindowedPool> pools;
  for (size_t c = 1; c < pools_.size(); ++c) {
    pools.push_back({&pools_[c], shape_.classes[c].window});
  }
  return pools;
}

int64_t BlockManager::Match(PrefixOwner owner, absl::Span<const int32_t> tokens, int64_t limit,
                            BlockTable* table) {
  assert(table->blocks.empty());
  table->manager = this;
  table->blocks.resize(pools_.size());
  if (!share_) return 0;
  table->lease = tree_.Match(owner, tokens, limit);
  table->began = tree_.clock();
  table->blocks[0].assign(table->lease.blocks().begin(), table->lease.blocks().end());
  for (size_t c = 1; c < pools_.size(); ++c) {
    table->blocks[c] = table->lease.windowed(c - 1);
    for (int32_t block : table->blocks[c]) {
      if (block >= 0) pools_[c].Ref(block);
    }
  }
  return table->lease.tokens();
}

std::optional<int64_t> BlockManager::Adopt(absl::string_view salt, BlockTable* table) {
  const int64_t matched = table->lease.tokens();
  if (shape_.recurrent()) {
    // The snapshot stays: others will begin with it, and its copy has to be noted down.
    const int32_t snapshot = table->lease.state();
    if (snapshot >= 0) states_.Ref(snapshot);
    const std::optional<int32_t> slot = AllocateState();
    if (snapshot >= 0) states_.Unref(snapshot);
    if (!slot) return std::nullopt;
    table->state = *slot;
    if (snapshot >= 0) {
      ops_.push_back({.kind = CacheOp::Kind::kCopyState, .from = snapshot, .to = *slot});
    }
  }
  const int32_t partial = static_cast<int32_t>(matched % kKvBlockTokens);
  if (partial == 0) return matched;
  if (CopyTail(salt, partial, table)) return matched;
  if (!shape_.recurrent() && pools_.size() == 1) {
    table->lease.Truncate(matched - partial);
    table->blocks[0].pop_back();
    return matched - partial;
  }
  // A shorter match would need another snapshot, or other windows.
  const int32_t state = std::exchange(table->state, -1);
  Release(table);
  table->manager = this;
  table->blocks.resize(pools_.size());
  table->state = state;
  return 0;
}

// Replaces the table's partly matched last blocks by copies. False, and nothing has changed, where
// there is no memory for all of them.
bool BlockManager::CopyTail(absl::string_view salt, int32_t tokens, BlockTable* table) {
  // The sources stay pinned and referenced while blocks are found for the copies.
  std::vector<int32_t> copies;
  for (size_t c = 0; c < pools_.size(); ++c) {
    const int32_t source = table->blocks[c].back();
    const std::optional<int32_t> copy = source < 0 ? source : Allocate(c, salt);
    if (!copy) {
      for (size_t taken = 0; taken < c; ++taken) {
        if (copies[taken] >= 0) pools_[taken].Unref(copies[taken]);
      }
      return false;
    }
    copies.push_back(*copy);
  }
  for (size_t c = 0; c < pools_.size(); ++c) {
    if (copies[c] < 0) continue;
    ops_.push_back({.kind = CacheOp::Kind::kCopyBlock,
                    .cache_class = static_cast<int32_t>(c),
                    .from = table->blocks[c].back(),
                    .to = copies[c],
                    .tokens = tokens});
  }
  table->lease.Truncate(table->lease.tokens() - tokens);
  for (size_t c = 0; c < pools_.size(); ++c) {
    const int32_t source = std::exchange(table->blocks[c].back(), copies[c]);
    if (c > 0 && source >= 0) pools_[c].Unref(source);
  }
  return true;
}

bool BlockManager::MakeRoomForPrefix(absl::string_view salt, int64_t tokens, BlockTable* table) {
  for (size_t c = 1; c < pools_.size(); ++c) {
    const int64_t seen = std::max<int64_t>(tokens - shape_.classes[c].window + 1, 0);
    table->blocks[c].resize(std::max<size_t>(table->blocks[c].size(), seen / kKvBlockTokens), -1);
  }
  return Grow(salt, tokens, table);
}

HeldState BlockManager::HoldSnapshot(const BlockTable& table) {
  if (table.lease.state() < 0) return {};
  return HeldState(&states_, table.lease.state());
}

HeldState::HeldState(KvBlockPool* pool, int32_t slot) : pool_(pool), slot_(slot) {
  pool->Ref(slot);
}

HeldState& HeldState::operator=(HeldState&& other) noexcept {
  if (this == &other) return *this;
  Drop();
  pool_ = std::exchange(other.pool_, nullptr);
  slot_ = std::exchange(other.slot_, -1);
  return *this;
}

void HeldState::Drop() {
  if (slot_ >= 0) pool_->Unref(std::exchange(slot_, -1));
}

bool BlockManager::Grow(absl::string_view salt, int64_t tokens, BlockTable* table) {
  const size_t wanted = BlocksFor(tokens);
  for (size_t c = 0; c < pools_.size(); ++c) {
    while (table->blocks[c].size() < wanted) {
      const std::optional<int32_t> block = Allocate(c, salt);
      if (!block) return false;
      table->blocks[c].push_back(*block);
    }
  }
  return true;
}

void BlockManager::Publish(PrefixOwner owner, absl::Span<const int32_t> tokens, bool partial,
                           Snapshot snapshot, BlockTable* table) {
  if (!share_) return;
  const size_t full = tokens.size() / kKvBlockTokens;
  if (!partial) tokens = tokens.subspan(0, full * kKvBlockTokens);
  const size_t leased = table->lease.blocks().size();
  if (tokens.size() <= leased * kKvBlockTokens && snapshot == Snapshot::kNone) return;
  const size_t blocks = BlocksFor(static_cast<int64_t>(tokens.size()));
  std::vector<std::vector<int32_t>> windowed;
  for (size_t c = 1; c < pools_.size(); ++c) {
    windowed.emplace_back(table->blocks[c].begin(), table->blocks[c].begin() + blocks);
  }
  std::optional<int32_t> state;
  if (snapshot != Snapshot::kNone && shape_.recurrent()) {
    state = snapshot == Snapshot::kNeeded ? AllocateState() : AllocateState(table->began);
  }
  if (state) {
    ops_.push_back({.kind = CacheOp::Kind::kCopyState, .from = table->state, .to = *state});
  }
  PrefixTree::Lease lease =
      tree_.Insert(owner, tokens, absl::MakeSpan(table->blocks[0]).subspan(0, blocks),
                   {.windowed = windowed, .state = state.value_or(-1)});
  if (state) states_.Unref(*state);
  lease.Truncate(static_cast<int64_t>(full) * kKvBlockTokens);
  // The tree has a block of the same numbers for each full run: ours, or one that was there before.
  for (size_t i = leased; i < full; ++i) {
    pools_[0].Unref(table->blocks[0][i]);
    table->blocks[0][i] = lease.blocks()[i];
  }
  table->lease = std::move(lease);
}

void BlockManager::LeaveBehind(int64_t computed, BlockTable* table) {
  for (size_t c = 1; c < pools_.size(); ++c) {
    std::vector<int32_t>& blocks = table->blocks[c];
    const int64_t seen = std::max<int64_t>(computed - shape_.classes[c].window + 1, 0);
    // From the back: what lies before the last one that is given back has been already.
    for (int64_t i = std::min<int64_t>(seen / kKvBlockTokens, blocks.size()) - 1;
         i >= 0 && blocks[i] >= 0; --i) {
      pools_[c].Unref(std::exchange(blocks[i], -1));
    }
  }
}

void BlockManager::Truncate(int64_t tokens, BlockTable* table) {
  const size_t keep = BlocksFor(tokens);
  for (size_t c = 0; c < pools_.size(); ++c) {
    assert(c > 0 || keep >= table->lease.blocks().size());
    for (; table->blocks[c].size() > keep; table->blocks[c].pop_back()) {
      if (table->blocks[c].back() >= 0) pools_[c].Unref(table->blocks[c].back());
    }
  }
}

bool BlockManager::SetAside(BlockTable* table) {
  const bool many = tree_.num_states() > states_.num_blocks() / 2;
  if (states_.num_free() == 0 && many) tree_.EvictState();
  KeepState(table);  // of a step that came to nothing
  const std::optional<int32_t> slot = states_.Allocate();
  if (!slot) return false;
  ops_.push_back({.kind = CacheOp::Kind::kCopyState, .from = table->state, .to = *slot});
  table->aside = *slot;
  return true;
}

void BlockManager::Rewind(BlockTable* table) {
  states_.Unref(std::exchange(table->state, std::exchange(table->aside, -1)));
}

void BlockManager::KeepState(BlockTable* table) {
  if (table->aside >= 0) states_.Unref(std::exchange(table->aside, -1));
}

void BlockManager::Release(BlockTable* table) {
  for (size_t c = 0; c < table->blocks.size(); ++c) {
    for (size_t i = c == 0 ? table->lease.blocks().size() : 0; i < table->blocks[c].size(); ++i) {
      if (table->blocks[c][i] >= 0) pools_[c].Unref(table->blocks[c][i]);
    }
  }
  if (table->state >= 0) states_.Unref(std::exchange(table->state, -1));
  KeepState(table);
  table->blocks.clear();
  table->lease = {};
  table->manager = nullptr;
}

int64_t BlockManager::MatchLength(PrefixOwner owner, absl::Span<const int32_t> tokens) const {
  return share_ ? tree_.MatchLength(owner, tokens) : 0;
}

bool BlockManager::SharesTail(const BlockTable& table) const {
  return !table.blocks.empty() && table.blocks[0].size() > table.lease.blocks().size() &&
         pools_[0].references(table.blocks[0].back()) > 1;
}

std::vector<CacheOp> BlockManager::TakeOps() { return std::exchange(ops_, {}); }

void BlockManager::Distrust() {
  owners_.Distrust();
  tree_.ForgetStates();
}

std::optional<int32_t> BlockManager::Allocate(size_t cache_class, absl::string_view salt) {
  KvBlockPool& pool = pools_[cache_class];
  if (pool.num_free() == 0) {
    if (cache_class == 0) {
      tree_.Evict(1);
    } else {
      tree_.EvictWindowed(cache_class - 1);
    }
  }
  const std::optional<int32_t> block = pool.Allocate();
  if (!block) return block;
  if (owners_.HoldsAnothers(cache_class, *block, salt)) {
    ops_.push_back({.kind = CacheOp::Kind::kZeroBlock,
                    .cache_class = static_cast<int32_t>(cache_class),
                    .to = *block});
  }
  owners_.Give(cache_class, *block, salt);
  return block;
}

// Nothing in a slot is read before it is written: a sequence's first token finds zeros.
std::optional<int32_t> BlockManager::AllocateState(uint64_t before) {
  if (states_.num_free() == 0) tree_.EvictState(before);
  return states_.Allocate();
}

int64_t BlockManager::free_bytes() const {
  int64_t bytes = states_.num_free() * shape_.state_bytes;
  for (size_t c = 0; c < pools_.size(); ++c) {
    bytes += pools_[c].num_free() * shape_.classes[c].block_bytes;
  }
  return bytes;
}

int64_t BlockManager::cached_bytes() const {
  int64_t bytes = tree_.num_blocks() * shape_.classes[0].block_bytes;
  for (size_t c = 1; c < pools_.size(); ++c) {
    bytes += tree_.num_windowed(c - 1) * shape_.classes[c].block_bytes;
  }
  return bytes + tree_.num_states() * shape_.state_bytes;
}

absl::Status BlockManager::CheckIntegrity(absl::Span<const BlockTable* const> tables) const {
  RETURN_IF_ERROR(tree_.CheckIntegrity());
  int64_t own = 0;
  std::vector<std::vector<bool>> used;  // of windowed classes, by tables
  for (const KvBlockPool& pool : pools_) used.emplace_back(pool.num_blocks(), false);
  int64_t states = 0;
  for (const BlockTable* table : tables) {
    states += (table->state >= 0) + (table->aside >= 0);
    if (table->blocks.empty()) continue;
    for (size_t i = table->lease.blocks().size(); i < table->blocks[0].size(); ++i) {
      own += pools_[0].references(table->blocks[0][i]) == 1;  // a shared tail counts as the tree's
    }
    for (size_t c = 1; c < pools_.size(); ++c) {
      for (int32_t block : table->blocks[c]) {
        if (block >= 0) used[c][block] = true;
      }
    }
  }
  auto lost = [](absl::string_view what, int64_t all, int64_t free, int64_t cached, int64_t own) {
    return absl::InternalError(absl::StrCat("of ", all, " ", what, " ", free, " are free, ", cached,
                                            " cached, ", own, " owned by sequences"));
  };
  if (num_free() + num_cached() + own != num_blocks()) {
    return lost("KV blocks", num_blocks(), num_free(), num_cached(), own);
  }
  for (size_t c = 1; c < pools_.size(); ++c) {
    const int64_t in_tables = std::count(used[c].begin(), used[c].end(), true);
    const int64_t taken = pools_[c].num_blocks() - pools_[c].num_free();
    const int64_t cached = tree_.num_windowed(c - 1);
    if (taken < std::max(in_tables, cached) || taken > in_tables + cached) {
      return lost("windowed KV blocks", pools_[c].num_blocks(), pools_[c].num_free(), cached,
                  in_tables);
    }
  }
  if (states_.num_free() + tree_.num_states() + states != states_.num_blocks()) {
    return lost("states", states_.num_blocks(), states_.num_free(), tree_.num_states(), states);
  }
  return absl::OkStatus();
}

}  // namespace lm
