#include "engine/runtime/block_manager.h"

#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/backend/backend.h"
#include "engine/base/status_macros.h"

namespace lm {

int32_t BlocksFor(int64_t tokens) {
  return static_cast<int32_t>((tokens + kKvBlockTokens - 1) / kKvBlockTokens);
}

BlockTable::~BlockTable() {
  if (manager != nullptr) manager->Release(this);
}

BlockManager::BlockManager(int32_t num_blocks, bool share)
    : share_(share),
      pool_(num_blocks),
      tree_(&pool_, kKvBlockTokens),
      owners_(num_blocks),
      distrusted_(num_blocks, false) {}

int64_t BlockManager::Match(absl::string_view salt, absl::Span<const int32_t> tokens, int64_t limit,
                            BlockTable* table) {
  assert(table->blocks.empty());
  table->manager = this;
  if (share_) table->lease = tree_.Match(salt, tokens, limit);
  table->blocks.assign(table->lease.blocks().begin(), table->lease.blocks().end());
  return table->lease.tokens();
}

int64_t BlockManager::Adopt(absl::string_view salt, BlockTable* table) {
  const int64_t matched = table->lease.tokens();
  const int32_t partial = static_cast<int32_t>(matched % kKvBlockTokens);
  if (partial == 0) return matched;
  // The source stays pinned while a block is found for the copy.
  const std::optional<int32_t> copy = Allocate(salt);
  if (copy) ops_.push_back({table->blocks.back(), *copy, partial});
  table->lease.Truncate(matched - partial);
  table->blocks.pop_back();
  if (!copy) return matched - partial;
  table->blocks.push_back(*copy);
  return matched;
}

bool BlockManager::Grow(absl::string_view salt, int64_t tokens, BlockTable* table) {
  const size_t wanted = BlocksFor(tokens);
  while (table->blocks.size() < wanted) {
    const std::optional<int32_t> block = Allocate(salt);
    if (!block) return false;
    table->blocks.push_back(*block);
  }
  return true;
}

void BlockManager::Publish(absl::string_view salt, absl::Span<const int32_t> tokens, bool partial,
                           BlockTable* table) {
  if (!share_) return;
  const size_t full = tokens.size() / kKvBlockTokens;
  if (!partial) tokens = tokens.subspan(0, full * kKvBlockTokens);
  const size_t leased = table->lease.blocks().size();
  if (tokens.size() <= leased * kKvBlockTokens) return;
  PrefixTree::Lease lease = tree_.Insert(
      salt, tokens, absl::MakeSpan(table->blocks).subspan(0, BlocksFor(tokens.size())));
  lease.Truncate(full * kKvBlockTokens);
  // The tree has a block of the same numbers for each full run: ours, or one that was there before.
  for (size_t i = leased; i < full; ++i) {
    pool_.Unref(table->blocks[i]);
    table->blocks[i] = lease.blocks()[i];
  }
  table->lease = std::move(lease);
}

void BlockManager::Release(BlockTable* table) {
  for (size_t i = table->lease.blocks().size(); i < table->blocks.size(); ++i) {
    pool_.Unref(table->blocks[i]);
  }
  table->blocks.clear();
  table->lease = {};
  table->manager = nullptr;
}

int64_t BlockManager::MatchLength(absl::string_view salt, absl::Span<const int32_t> tokens) const {
  return share_ ? tree_.MatchLength(salt, tokens) : 0;
}

bool BlockManager::SharesTail(const BlockTable& table) const {
  return table.blocks.size() > table.lease.blocks().size() &&
         pool_.references(table.blocks.back()) > 1;
}

std::vector<BlockOp> BlockManager::TakeOps() { return std::exchange(ops_, {}); }

void BlockManager::Distrust() { distrusted_.assign(distrusted_.size(), true); }

std::optional<int32_t> BlockManager::Allocate(absl::string_view salt) {
  if (pool_.num_free() == 0) tree_.Evict(1);
  const std::optional<int32_t> block = pool_.Allocate();
  if (!block) return block;
  std::optional<std::string>& owner = owners_[*block];
  const bool foreign = owner.has_value() && *owner != salt;
  if (foreign || distrusted_[*block]) ops_.push_back({.from = -1, .to = *block, .tokens = 0});
  distrusted_[*block] = false;
  if (!owner.has_value() || foreign) owner = std::string(salt);
  return block;
}

absl::Status BlockManager::CheckIntegrity(absl::Span<const BlockTable* const> tables) const {
  RETURN_IF_ERROR(tree_.CheckIntegrity());
  int64_t own = 0;
  for (const BlockTable* table : tables) {
    for (size_t i = table->lease.blocks().size(); i < table->blocks.size(); ++i) {
      own += pool_.references(table->blocks[i]) == 1;  // a shared tail counts as the tree's
    }
  }
  if (num_free() + num_cached() + own != num_blocks()) {
    return absl::InternalError(absl::StrCat("of ", num_blocks(), " KV blocks ", num_free(),
                                            " are free, ", num_cached(), " cached, ", own,
                                            " owned by sequences"));
  }
  return absl::OkStatus();
}

}  // namespace lm
