#include "engine/runtime/draft_model.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/base/monotonic_time.h"
#include "engine/base/status_macros.h"

namespace lm {

struct DraftModel::RowCache final : DraftMemory {
  BlockTable table;
  std::vector<int32_t> tokens;  // whose keys and values it has
};

DraftModel::DraftModel(LanguageModel* model, int32_t vocab, const std::atomic<bool>* cancel)
    : model_(*model),
      common_vocab_(std::min(vocab, model->vocab_size())),
      cancel_(*cancel),
      blocks_(model->cache(), /*share=*/true) {
  blocks_.Distrust();  // an engine that recovers makes another one over the same memory
}

void DraftModel::Propose(absl::Span<DraftRow> rows, absl::FunctionRef<bool(const DraftRow&)> worth,
                         std::vector<CacheOp>*) {
  std::vector<Active> active;
  int32_t budget = kStepTokens;
  for (DraftRow& row : rows) {
    row.draft = {.kind = kFirstKind, .last_kind = kFirstKind + kMostGuessed - 1};
    Active one;
    if (!Begin(&row, budget, &one)) continue;
    budget -= static_cast<int32_t>(one.next.size());
    active.push_back(std::move(one));
  }
  while (!active.empty()) {
    if (!Step(&active).ok()) return GiveUp(active);
    std::erase_if(active, [worth](const Active& a) {
      return !a.samples ||
             static_cast<int32_t>(a.row->draft.tokens.size()) >=
                 std::min(a.row->most, kMostGuessed) ||
             !worth(*a.row);
    });
    for (Active& a : active) a.next = {a.row->draft.tokens.back()};
  }
}

// What of the row's text is to be computed now. False where there is no draft to be had.
bool DraftModel::Begin(DraftRow* row, int32_t budget, Active* active) {
  const absl::Span<const int32_t> context = row->context;
  const int64_t longest = static_cast<int64_t>(context.size()) + std::min(row->most, kMostGuessed);
  if (row->most <= 0 || budget <= 0 || longest > model_.context_length()) return false;
  if (*row->memory == nullptr) *row->memory = std::make_unique<RowCache>();
  auto& cache = static_cast<RowCache&>(**row->memory);
  if (cache.table.manager == nullptr) {
    const int64_t limit = static_cast<int64_t>(context.size()) - 1;
    blocks_.Match(row->salt, context, limit, &cache.table);
    const std::optional<int64_t> matched = blocks_.Adopt(row->salt, &cache.table);
    cache.tokens.assign(context.begin(), context.begin() + matched.value_or(0));
  }
  // What was guessed wrong goes; the last token is computed in any case.
  const auto known =
      std::mismatch(cache.tokens.begin(), cache.tokens.end(), context.begin(), context.end() - 1);
  cache.tokens.erase(known.first, cache.tokens.end());
  const auto computed = static_cast<int64_t>(cache.tokens.size());
  blocks_.Truncate(computed, &cache.table);
  blocks_.LeaveBehind(computed, &cache.table);
  const auto rest = context.subspan(computed);
  const bool strange = std::any_of(rest.begin(), rest.end(),
                                   [this](int32_t token) { return token >= common_vocab_; });
  if (strange) return false;
  const auto now = rest.subspan(0, std::min<size_t>(rest.size(), budget));
  if (!blocks_.Grow(row->salt, std::max<int64_t>(longest, computed + now.size()), &cache.table)) {
    cache.tokens.clear();
    blocks_.Release(&cache.table);
    return false;
  }
  *active = {.row = row,
             .cache = &cache,
             .next = {now.begin(), now.end()},
             .samples = now.size() == rest.size()};
  return true;
}

absl::Status DraftModel::Step(std::vector<Active>* rows) {
  ModelStep step;
  step.cache_ops = blocks_.TakeOps();
  step.tables.blocks.resize(model_.cache().classes.size());
  for (const Active& a : *rows) {
    const auto computed = static_cast<int32_t>(a.cache->tokens.size());
    const auto count = static_cast<int32_t>(a.next.size());
    step.tables.Append(a.next.data(), count, computed);
    AppendBlocks(a.cache->table, computed + count, &step.tables);
    if (!a.samples) continue;
    step.samples.push_back({.row = static_cast<int32_t>(step.tables.tokens.size()) - 1});
  }
  step.margins = true;
  const bool decodes = step.tables.tokens.size() == rows->size();
  const MonotonicTime begin = MonotonicTime::Now();
  RETURN_IF_ERROR(model_.Run(std::move(step), cancel_, &results_));
  if (decodes) costs_.Record(static_cast<int32_t>(rows->size()), MonotonicTime::Now() - begin);
  size_t picked = 0;
  for (Active& a : *rows) {
    a.cache->tokens.insert(a.cache->tokens.end(), a.next.begin(), a.next.end());
    if (a.next.size() > kKvBlockTokens) {  // of a prompt: others may begin likewise
      blocks_.Publish(a.row->salt, a.cache->tokens, /*partial=*/true, Snapshot::kNone,
                      &a.cache->table);
    }
    if (!a.samples) continue;
    const absl::StatusOr<int32_t>& token = results_.tokens[picked];
    RETURN_IF_ERROR(token.status());
    a.samples = *token < common_vocab_;
    if (a.samples) {
      a.row->draft.tokens.push_back(*token);
      if (!results_.margins.empty()) a.row->draft.margins.push_back(results_.margins[picked]);
    }
    ++picked;
  }
  return absl::OkStatus();
}

// A step failed: what blocks hold is not known.
void DraftModel::GiveUp(const std::vector<Active>& rows) {
  if (!results_.cache_ops_left.empty()) blocks_.Distrust();
  for (const Active& a : rows) {
    a.row->draft.tokens.clear();
    a.row->draft.margins.clear();
    a.cache->tokens.clear();
    blocks_.Release(&a.cache->table);
  }
}

}  // namespace lm
