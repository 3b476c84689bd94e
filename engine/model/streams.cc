#include "engine/model/streams.h"

#include <utility>

#include "engine/base/status_macros.h"

namespace lm {
namespace {

// Stream `index` of a matrix of them.
Tensor Stream(Tensor streams, int64_t hidden, int64_t index) {
  return streams.Cols(index * hidden, hidden);
}

// factors[t] = the root of the mean square of x[t]; `scratch` is as x.
absl::Status Lengths(const DeviceNorm& norm, Tensor x, Tensor scratch, Tensor factors,
                     Backend* backend) {
  // x . x / rms(x), over as many
  RETURN_IF_ERROR(backend->Normalize(x, norm.norm, scratch));
  RETURN_IF_ERROR(backend->Dot(x, scratch, factors));
  return backend->ScaleAndCap(factors, 1 / static_cast<float>(x.cols), /*cap=*/0);
}

// out = projection of x, each row as long as the factors say.
absl::Status ProjectToLength(const Projection& projection, const DeviceNorm& norm, Tensor x,
                             Tensor factors, Tensor out, Backend* backend) {
  RETURN_IF_ERROR(projection.Apply(backend, ProductInput::Plain(x), ProductResult::kReplaces, out));
  RETURN_IF_ERROR(backend->Normalize(out, norm.norm, out));
  return backend->ScaleGroups(out, factors, Activation::kIdentity);
}

// What a layer's mixing is made of: tanh(W_router norm(x)).
absl::StatusOr<Tensor> Route(const LayerRun& run, Tensor x) {
  const StreamWeights& weights = run.weights.streams;
  const Tensor routed = run.Of(run.act.stream_router, run.model.streams);
  RETURN_IF_ERROR(run.Apply(weights.router, ProductInput::Normed(x, weights.router_norm.norm),
                            ProductResult::kReplaces, routed));
  RETURN_IF_ERROR(run.backend->ScaleAndCap(routed, /*scale=*/1, /*cap=*/1));
  return routed;
}

}  // namespace

absl::Status BeginStreams(const ModelSpec& spec, const Weights& weights, int64_t rows,
                          const Activations& act, Backend* backend) {
  const Tensor x = act.x.Rows(0, rows), streams = act.streams.Rows(0, rows);
  const Tensor lengths = act.stream_router.Rows(0, rows).Cols(0, 1);
  RETURN_IF_ERROR(Lengths(weights.stream_norm, x, act.hidden.Rows(0, rows), lengths, backend));
  RETURN_IF_ERROR(CopyRows(backend, x, Stream(streams, spec.hidden, 0)));
  for (int64_t i = 1; i < spec.streams; ++i) {
    RETURN_IF_ERROR(ProjectToLength(weights.stream_begins[i - 1], weights.stream_norm, x, lengths,
                                    Stream(streams, spec.hidden, i), backend));
  }
  return absl::OkStatus();
}

absl::Status EndStreams(const ModelSpec& spec, const Weights& weights, int64_t rows,
                        const Activations& act, Backend* backend) {
  const Tensor x = act.x.Rows(0, rows), streams = act.streams.Rows(0, rows);
  const Tensor projected = act.hidden.Rows(0, rows);
  const Tensor lengths = act.stream_router.Rows(0, rows).Cols(0, 1);
  RETURN_IF_ERROR(CopyRows(backend, Stream(streams, spec.hidden, 0), x));
  RETURN_IF_ERROR(Lengths(weights.stream_end_norm, x, projected, lengths, backend));
  for (int64_t i = 1; i < spec.streams; ++i) {
    RETURN_IF_ERROR(ProjectToLength(weights.stream_ends[i - 1], weights.stream_end_norm,
                                    Stream(streams, spec.hidden, i), lengths, projected, backend));
    RETURN_IF_ERROR(backend->Add(x, projected, /*scale=*/1));
  }
  return backend->ScaleAndCap(x, 1 / static_cast<float>(spec.streams), /*cap=*/0);
}

absl::Status PredictStreams(const LayerRun& run) {
  const int64_t n = run.model.streams;
  const Tensor streams = run.act.streams.Rows(0, run.rows);
  const Tensor predicted = run.act.predicted.Rows(0, run.rows);
  ASSIGN_OR_RETURN(const Tensor routed, Route(run, Stream(streams, run.model.hidden, 0)));
  const Tensor numbers = run.Of(run.act.stream_numbers, n * n);
  RETURN_IF_ERROR(run.Apply(run.weights.streams.predict, ProductInput::Plain(routed),
                            ProductResult::kReplaces, numbers));
  RETURN_IF_ERROR(CopyRows(run.backend, streams, predicted));
  RETURN_IF_ERROR(run.backend->MixStreams(streams, numbers, static_cast<int32_t>(n),
                                          ProductResult::kIsAdded, predicted));
  return CopyRows(run.backend, Stream(predicted, run.model.hidden, 0), run.x());
}

absl::Status CorrectStreams(const LayerRun& run) {
  const StreamWeights& weights = run.weights.streams;
  const Tensor predicted = run.act.predicted.Rows(0, run.rows);
  ASSIGN_OR_RETURN(const Tensor routed, Route(run, run.x()));
  const Tensor numbers = run.Of(run.act.stream_numbers, run.model.streams);
  RETURN_IF_ERROR(
      run.Apply(weights.correct, ProductInput::Plain(routed), ProductResult::kReplaces, numbers));
  RETURN_IF_ERROR(run.backend->Normalize(numbers, weights.one_more.norm, numbers));
  RETURN_IF_ERROR(run.backend->Add(run.x(), Stream(predicted, run.model.hidden, 0), /*scale=*/-1));
  RETURN_IF_ERROR(
      run.backend->MixStreams(run.x(), numbers, /*streams=*/1, ProductResult::kIsAdded, predicted));
  std::swap(run.act.streams, run.act.predicted);
  return absl::OkStatus();
}

ProductInput StreamsInput(const LayerRun& run) {
  return ProductInput::Normed(Stream(run.act.streams.Rows(0, run.rows), run.model.hidden, 0),
                              run.weights.streams.input_gain.norm);
}

absl::Status AddToOtherStreams(const LayerRun& run, Tensor added) {
  for (int64_t i = 1; i < run.model.streams; ++i) {
    RETURN_IF_ERROR(run.backend->Add(Stream(run.act.streams.Rows(0, run.rows), run.model.hidden, i),
                                     added, /*scale=*/1));
  }
  return absl::OkStatus();
}

}  // namespace lm
