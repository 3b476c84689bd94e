#include "engine/runtime/mtp_drafter.h"

#include <algorithm>
#include <utility>

#include "engine/base/monotonic_time.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/block_manager.h"

namespace lm {

struct MtpDrafter::Observed final : DraftMemory {
  int32_t position = -1;
  std::vector<float> hidden;
};

void MtpDrafter::Observe(int32_t position, absl::Span<const float> hidden,
                         std::unique_ptr<DraftMemory>* memory) const {
  if (*memory == nullptr) *memory = std::make_unique<Observed>();
  auto& observed = static_cast<Observed&>(**memory);
  observed.position = position;
  observed.hidden.assign(hidden.begin(), hidden.end());
}

void MtpDrafter::Propose(absl::Span<DraftRow> rows, absl::FunctionRef<bool(const DraftRow&)> worth,
                         std::vector<CacheOp>* cache_ops) {
  std::vector<Active> active;
  for (DraftRow& row : rows) {
    row.draft = {.kind = kFirstKind, .last_kind = kFirstKind + kMostGuessed - 1};
    const auto position = static_cast<int32_t>(row.context.size()) - 2;
    const auto* observed = static_cast<const Observed*>(row.memory->get());
    if (observed == nullptr || observed->position != position) continue;
    auto room = static_cast<int32_t>(row.blocks->blocks[0].size()) * kKvBlockTokens;
    room = std::min(room, model_.context_length()) - position;
    const int32_t most = std::min({row.most, kMostGuessed, room});
    if (most <= 0) continue;
    // Ballots of one prompt may have the block of its last token in common.
    const int32_t block = row.blocks->blocks[0][position / kKvBlockTokens];
    const bool shared = std::any_of(active.begin(), active.end(), [block](const Active& other) {
      return other.row->blocks->blocks[0][other.position / kKvBlockTokens] == block;
    });
    if (shared) continue;
    active.push_back({.row = &row,
                      .position = position,
                      .token = row.context.back(),
                      .hidden = observed->hidden,
                      .most = most});
  }
  while (!active.empty()) {
    if (!Step(absl::MakeSpan(active), cache_ops).ok()) return;
    std::erase_if(active, [worth](const Active& a) {
      return static_cast<int32_t>(a.row->draft.tokens.size()) >= a.most || !worth(*a.row);
    });
  }
}

// A token of each row.
absl::Status MtpDrafter::Step(absl::Span<Active> rows, std::vector<CacheOp>* cache_ops) {
  ModelStep step;
  step.cache_ops = std::exchange(*cache_ops, {});
  step.tables.blocks.resize(model_.cache().classes.size());
  for (const Active& a : rows) {
    const auto row = static_cast<int32_t>(step.tables.tokens.size());
    step.tables.Append(&a.token, 1, a.position);
    AppendBlocks(*a.row->blocks, a.position + 1, &step.tables);
    step.mtp_hidden.insert(step.mtp_hidden.end(), a.hidden.begin(), a.hidden.end());
    step.samples.push_back({.row = row});
    step.hidden_rows.push_back(row);
  }
  step.margins = true;
  const MonotonicTime begin = MonotonicTime::Now();
  const absl::Status status = model_.Run(std::move(step), cancel_, &results_);
  *cache_ops = std::exchange(results_.cache_ops_left, {});
  RETURN_IF_ERROR(status);
  costs_.Record(static_cast<int32_t>(rows.size()), MonotonicTime::Now() - begin);
  absl::Span<const float> hidden = results_.hidden;
  for (size_t i = 0; i < rows.size(); ++i) {
    RETURN_IF_ERROR(results_.tokens[i].status());
    Active& a = rows[i];
    a.token = *results_.tokens[i];
    a.row->draft.tokens.push_back(a.token);
    if (!results_.margins.empty()) a.row->draft.margins.push_back(results_.margins[i]);
    a.hidden.assign(hidden.begin(), hidden.begin() + model_.hidden_size());
    hidden.remove_prefix(model_.hidden_size());
    ++a.position;
  }
  return absl::OkStatus();
}

}  // namespace lm
