// Several residual streams (AltUp: Baykal et al. 2023, arXiv 2301.13310; Gemma 3n), of which a
// layer computes with the first. With r(x) = tanh(W_router norm(x)) and numbers of each row
// P = W_predict r (streams, streams), c = W_correct r (streams,):
//   predicted_j = stream_j + sum_s P(stream_0)_js stream_s;      the layer's x is predicted_0,
//   stream_j    = predicted_j + (1 + c(x)_j) (x - predicted_0),  x being what the layer made of it.
// The streams begin as the embedding and projections of it, each made as long as that is, and end
// as the mean of the first and of projections of the others, each made as long as the first is.
//
// Where layers have an embedding of the token (per_layer_input), what it gives is added to all but
// the first.
#ifndef LM_ENGINE_MODEL_STREAMS_H_
#define LM_ENGINE_MODEL_STREAMS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/backend/backend.h"
#include "engine/model/layer_run.h"

namespace lm {

// Of the first `rows` rows: x to the streams, and back.
absl::Status BeginStreams(const ModelSpec& spec, const Weights& weights, int64_t rows,
                          const Activations& act, Backend* backend);
absl::Status EndStreams(const ModelSpec& spec, const Weights& weights, int64_t rows,
                        const Activations& act, Backend* backend);

// Before and behind a layer.
absl::Status PredictStreams(const LayerRun& run);
absl::Status CorrectStreams(const LayerRun& run);

// x, of which the layer's embedding is gated: the first stream, with gains.
ProductInput StreamsInput(const LayerRun& run);
// Adds the rows to all streams but the first.
absl::Status AddToOtherStreams(const LayerRun& run, Tensor added);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_STREAMS_H_
