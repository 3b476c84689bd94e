#include "engine/model/hyper_connections.h"

#include <utility>

#include "engine/base/status_macros.h"

namespace lm {
namespace {

// Where the numbers of n streams are in a row, and M.
struct Numbers {
  Tensor all, into, out_of, mixing, balanced;
};
Numbers NumbersOf(Tensor row, int64_t n) {
  return {row.Cols(0, n * (2 + n)), row.Cols(0, n), row.Cols(n, n), row.Cols(2 * n, n * n),
          row.Cols(n * (2 + n), n * n)};
}

// into = sigmoid(into) + eps
absl::Status WeighStreams(const HyperWeights& weights, Tensor into, Backend* backend) {
  RETURN_IF_ERROR(backend->GatedActivation(Activation::kSigmoid, into, {}, into));
  return backend->Normalize(into, weights.plus_eps.norm, into);
}

}  // namespace

absl::Status FillStreams(const ModelSpec& spec, int64_t rows, const Activations& act,
                         Backend* backend) {
  const Tensor x = act.x.Rows(0, rows);
  for (int64_t i = 0; i < spec.streams; ++i) {
    const Tensor stream = act.streams.Rows(0, rows).Cols(i * spec.hidden, spec.hidden);
    RETURN_IF_ERROR(backend->GatedActivation(Activation::kIdentity, x, {}, stream));
  }
  return absl::OkStatus();
}

absl::Status JoinStreams(const ModelSpec& spec, const HyperWeights& weights, int64_t rows,
                         const Activations& act, Backend* backend) {
  const Tensor streams = act.streams.Rows(0, rows);
  const Tensor into = act.stream_numbers.Rows(0, rows).Cols(0, spec.streams);
  RETURN_IF_ERROR(weights.numbers.Apply(backend, ProductInput::Normed(streams, weights.norm.norm),
                                        ProductResult::kReplaces, into));
  RETURN_IF_ERROR(backend->Normalize(into, weights.affine.norm, into));
  RETURN_IF_ERROR(WeighStreams(weights, into, backend));
  return backend->MixStreams(streams, into, static_cast<int32_t>(spec.streams),
                             ProductResult::kReplaces, act.x.Rows(0, rows));
}

absl::Status EnterStreams(const LayerRun& run, const HyperWeights& weights) {
  const auto n = static_cast<int32_t>(run.model.streams);
  Backend* const backend = run.backend;
  const Tensor streams = run.act.streams.Rows(0, run.rows);
  const Numbers numbers = NumbersOf(run.act.stream_numbers.Rows(0, run.rows), n);
  RETURN_IF_ERROR(run.Apply(weights.numbers, ProductInput::Normed(streams, weights.norm.norm),
                            ProductResult::kReplaces, numbers.all));
  RETURN_IF_ERROR(backend->Normalize(numbers.all, weights.affine.norm, numbers.all));
  RETURN_IF_ERROR(WeighStreams(weights, numbers.into, backend));
  RETURN_IF_ERROR(
      backend->GatedActivation(Activation::kSigmoid, numbers.out_of, {}, numbers.out_of));
  RETURN_IF_ERROR(backend->ScaleAndCap(numbers.out_of, /*scale=*/2, /*cap=*/0));
  RETURN_IF_ERROR(backend->BalanceStreams(numbers.mixing, n,
                                          static_cast<int32_t>(run.model.hyper->iterations),
                                          run.model.hyper->eps, numbers.balanced));
  return backend->MixStreams(streams, numbers.into, n, ProductResult::kReplaces, run.x());
}

absl::Status LeaveStreams(const LayerRun& run) {
  const auto n = static_cast<int32_t>(run.model.streams);
  const Tensor next = run.act.predicted.Rows(0, run.rows);
  const Numbers numbers = NumbersOf(run.act.stream_numbers.Rows(0, run.rows), n);
  RETURN_IF_ERROR(run.backend->MixStreams(run.act.streams.Rows(0, run.rows), numbers.balanced, n,
                                          ProductResult::kReplaces, next));
  RETURN_IF_ERROR(run.backend->MixStreams(run.x(), numbers.out_of, /*streams=*/1,
                                          ProductResult::kIsAdded, next));
  std::swap(run.act.streams, run.act.predicted);
  return absl::OkStatus();
}

}  // namespace lm
