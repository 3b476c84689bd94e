// Compressed attention (CompressedSpec): over a window of tokens, and behind it over pooled rows.
#include <algorithm>
#include <cmath>

#include "engine/base/status_macros.h"
#include "engine/model/column_taker.h"
#include "engine/model/mixers.h"

namespace lm {
namespace {

Rope TurnBy(const LayerRun& run, int32_t table) {
  return {.table = table, .pairing = run.model.ropes[table].pairing};
}

// Pools rows, norms and turns what comes of it, and stores it.
absl::Status Pool(const LayerRun& run, const CompressedSpec& spec, const PoolInputs& inputs,
                  const DeviceNorm& norm, const StateLayer& state, const RowLayer& layer,
                  Tensor pooled) {
  RETURN_IF_ERROR(run.backend->PoolRows(inputs, state, pooled));
  RETURN_IF_ERROR(run.backend->Normalize(pooled, norm.norm, pooled));
  RETURN_IF_ERROR(run.backend->RotateTails(pooled, pooled.cols, TurnBy(run, spec.pooled_rope)));
  return run.backend->StoreRows(pooled, layer);
}

// The most rows of the layer that a token of the step sees.
int64_t MostSeen(const LayerRun& run, const RowLayer& layer) {
  int64_t most = 0;
  for (const StepSequence& sequence : run.tables->sequences) {
    most = std::max(most, layer.SeenAt(sequence.context() - 1));
  }
  return most;
}

// Which pooled rows each token sees; empty where all see all of them. `weights` are scaled.
absl::StatusOr<Tensor> Choose(const LayerRun& run, const AttentionSpec& attention, Tensor low,
                              Tensor weights, const RowLayer& layer) {
  const CompressedSpec& spec = *attention.compressed;
  const int64_t seen = MostSeen(run, layer);
  if (seen <= spec.most) return Tensor();
  Backend* const backend = run.backend;
  const Tensor q = run.Of(run.act.index_q, spec.index_heads * spec.index_dim);
  RETURN_IF_ERROR(run.Apply(run.mixer.compressed.index_q, ProductInput::Plain(low),
                            ProductResult::kReplaces, q));
  RETURN_IF_ERROR(backend->RotateTails(q, spec.index_dim, TurnBy(run, attention.rope)));
  const auto heads = static_cast<float>(spec.index_heads * spec.index_dim);
  RETURN_IF_ERROR(backend->ScaleAndCap(weights, 1 / std::sqrt(heads), /*cap=*/0));
  const size_t bytes = run.rows * seen * sizeof(float);
  if (run.act.index_scores.bytes() < bytes) {
    const size_t grown = std::max(bytes, 2 * run.act.index_scores.bytes());
    run.act.index_scores = Buffer();
    ASSIGN_OR_RETURN(run.act.index_scores, backend->Allocate(grown));
  }
  const Tensor scores(run.act.index_scores.data(), DType::kF32, run.rows, seen);
  RETURN_IF_ERROR(backend->ScoreRows(q, weights, layer, scores));
  const Tensor chosen(run.act.index_chosen.data, DType::kI32, run.rows, spec.most);
  RETURN_IF_ERROR(backend->ChooseRows(scores, layer, chosen));
  return chosen;
}

}  // namespace

absl::StatusOr<Tensor> AttendCompressed(const LayerRun& run, const AttentionSpec& attention,
                                        const RowLayers& rows, const StateLayer& pool,
                                        const StateLayer& index_pool) {
  Backend* const backend = run.backend;
  const CompressedSpec& spec = *attention.compressed;
  const CompressedWeights& weights = run.mixer.compressed;
  const int64_t dim = attention.key_dim;
  ColumnTaker take(run.act.mixer_input.Rows(0, run.rows));
  const Tensor low = take(spec.q_rank), near = take(dim);
  const Tensor values = take(attention.pooled_cols()), scores = take(attention.pooled_cols());
  const Tensor index_values = take(attention.index_cols());
  const Tensor index_scores = take(attention.index_cols()), of_heads = take(spec.index_heads);
  const Rope rope = TurnBy(run, attention.rope);

  const Tensor q = run.Of(run.act.compressed_q, attention.q_cols());
  RETURN_IF_ERROR(backend->Normalize(low, weights.q_norm.norm, low));
  RETURN_IF_ERROR(run.Apply(weights.q_b, ProductInput::Plain(low), ProductResult::kReplaces, q));
  RETURN_IF_ERROR(backend->Normalize(q, weights.head_norm.norm, q));
  RETURN_IF_ERROR(backend->RotateTails(q, dim, rope));
  RETURN_IF_ERROR(backend->Normalize(near, weights.norm.norm, near));
  RETURN_IF_ERROR(backend->RotateTails(near, dim, rope));
  RETURN_IF_ERROR(backend->StoreRows(near, rows.near));
  RowAttention seen = {.near = rows.near,
                       .window = {.size = static_cast<int32_t>(attention.window)},
                       .far = rows.pooled,
                       .chosen = {},
                       .scale = attention.scale,
                       .sinks = run.mixer.sinks.tensor};
  auto pooled_of = [&](Tensor of_values, Tensor of_scores, const DeviceVector& places) {
    return PoolInputs{of_values, of_scores, places.tensor, static_cast<int32_t>(spec.every),
                      spec.overlaps};
  };
  if (spec.every > 0) {
    RETURN_IF_ERROR(Pool(run, spec, pooled_of(values, scores, weights.places), weights.pooled_norm,
                         pool, rows.pooled, run.Of(run.act.pooled, dim)));
  }
  if (spec.index_heads > 0) {
    RETURN_IF_ERROR(Pool(run, spec, pooled_of(index_values, index_scores, weights.index_places),
                         weights.index_norm, index_pool, rows.index,
                         run.Of(run.act.index_pooled, spec.index_dim)));
    ASSIGN_OR_RETURN(seen.chosen, Choose(run, attention, low, of_heads, rows.index));
  }
  const Tensor attended = run.Of(run.act.compressed_out, attention.out_cols());
  RETURN_IF_ERROR(backend->AttendRows(q, seen, attended));
  RETURN_IF_ERROR(backend->RotateTails(attended, dim, TurnBy(run, spec.back_rope)));
  const Tensor out = run.Of(run.act.mixed, spec.groups * spec.o_rank);
  const int64_t width = attention.out_cols() / spec.groups;
  for (int64_t g = 0; g < spec.groups; ++g) {
    RETURN_IF_ERROR(run.Apply(weights.groups[g],
                              ProductInput::Plain(attended.Cols(g * width, width)),
                              ProductResult::kReplaces, out.Cols(g * spec.o_rank, spec.o_rank)));
  }
  return out;
}

}  // namespace lm
