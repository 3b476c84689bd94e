// Hyper-connections: n residual streams, of which mixer and feed-forward each have a mixture for
// their x, and which are mixed anew behind them (Zhu et al. 2024, arXiv 2409.19606), by a matrix
// that keeps the streams' sizes (Xie et al. 2025, arXiv 2512.24880; DeepSeek-V4). Of all streams
// side by side each makes n, n and n * n numbers,
//   a, b, m  = gains * (W norm(streams)) + biases
//   x        = sum_s (sigmoid(a_s) + eps) stream_s
//   stream_j = 2 sigmoid(b_j) y + sum_s M_js stream_s,   M = BalanceStreams(m), y made of norm(x)
// The streams begin as the embedding, each of them, and end as such an x.
#ifndef LM_ENGINE_MODEL_HYPER_CONNECTIONS_H_
#define LM_ENGINE_MODEL_HYPER_CONNECTIONS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/backend/backend.h"
#include "engine/model/layer_run.h"

namespace lm {

// Of the first `rows` rows: x to the streams, and back.
absl::Status FillStreams(const ModelSpec& spec, int64_t rows, const Activations& act,
                         Backend* backend);
absl::Status JoinStreams(const ModelSpec& spec, const HyperWeights& weights, int64_t rows,
                         const Activations& act, Backend* backend);

// Makes x, and what LeaveStreams needs.
absl::Status EnterStreams(const LayerRun& run, const HyperWeights& weights);
// x, which is y by now, to the streams.
absl::Status LeaveStreams(const LayerRun& run);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_HYPER_CONNECTIONS_H_
