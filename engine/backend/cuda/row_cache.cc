// Ops of compressed attention: rows pooled, stored, scored and attended to; and streams balanced.
#include "engine/backend/check_arguments.h"
#include "engine/backend/cuda/cuda_ops.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::Status CudaBackend::RotateTails(Tensor x, int64_t head_dim, const Rope& rope) {
  RETURN_IF_ERROR(CheckTurn(step_index(), x, head_dim, rope));
  RETURN_IF_ERROR(device_->Begin());
  if (x.rows == 0 || x.cols == 0) return absl::OkStatus();
  return device_->Check(
      cuda::RotateTails(device_->queue(), ToMatrix(x), head_dim, placed_.rope(rope.table),
                        rope.pairing == RopePairing::kHalves),
      "RotateTails");
}

absl::Status CudaBackend::PoolRows(const PoolInputs& in, const StateLayer& layer, Tensor out) {
  RETURN_IF_ERROR(CheckPoolRows(step_index(), in, layer, out));
  RETURN_IF_ERROR(device_->Begin());
  if (out.rows == 0 || out.cols == 0) return absl::OkStatus();
  const cuda::PooledRows rows = {ToMatrix(in.values), ToMatrix(in.scores), ToMatrix(in.places),
                                 in.every, in.overlaps};
  return device_->Check(cuda::PoolRows(device_->queue(), rows, placed_.rows(),
                                       {layer.data, layer.slot_stride}, ToMatrix(out)),
                        "PoolRows");
}

absl::Status CudaBackend::StoreRows(Tensor x, const RowLayer& layer) {
  RETURN_IF_ERROR(CheckStoreRows(step_index(), x, layer));
  RETURN_IF_ERROR(device_->Begin());
  if (x.rows == 0) return absl::OkStatus();
  return device_->Check(cuda::StoreRows(device_->queue(), ToMatrix(x), placed_.rows(),
                                        placed_.slots(layer.cache_class), ToRowCache(layer)),
                        "StoreRows");
}

absl::Status CudaBackend::ScoreRows(Tensor q, Tensor weights, const RowLayer& layer, Tensor out) {
  RETURN_IF_ERROR(CheckScoreRows(step_index(), q, weights, layer, out));
  RETURN_IF_ERROR(device_->Begin());
  if (out.rows == 0 || out.cols == 0) return absl::OkStatus();
  return device_->Check(cuda::ScoreRows(device_->queue(), ToMatrix(q), ToMatrix(weights),
                                        placed_.rows(), ToRowCache(layer), ToMatrix(out)),
                        "ScoreRows");
}

absl::Status CudaBackend::AttendRows(Tensor q, const RowAttention& in, Tensor out) {
  RETURN_IF_ERROR(CheckAttendRows(step_index(), q, in, out));
  RETURN_IF_ERROR(device_->Begin());
  if (q.rows == 0) return absl::OkStatus();
  const bool pools = in.far.data != nullptr;
  const cuda::RowScores scores = {ToRowCache(in.near),
                                  pools ? ToRowCache(in.far) : cuda::RowCache{},
                                  in.window,
                                  static_cast<const int32_t*>(in.chosen.data),
                                  in.chosen.row_bytes / static_cast<int64_t>(sizeof(int32_t)),
                                  in.chosen.cols,
                                  in.scale,
                                  in.sinks.empty() ? nullptr : in.sinks.row<float>(0)};
  return device_->Check(
      cuda::AttendRows(device_->queue(), ToMatrix(q), placed_.rows(), scores, ToMatrix(out)),
      "AttendRows");
}

absl::Status CudaBackend::BalanceStreams(Tensor x, int32_t streams, int32_t iterations, float eps,
                                         Tensor out) {
  RETURN_IF_ERROR(CheckBalanceStreams(x, streams, iterations, out));
  RETURN_IF_ERROR(device_->Begin());
  if (x.rows == 0) return absl::OkStatus();
  return device_->Check(
      cuda::BalanceStreams(device_->queue(), ToMatrix(x), streams, iterations, eps, ToMatrix(out)),
      "BalanceStreams");
}

cuda::RowCache CudaBackend::ToRowCache(const RowLayer& layer) const {
  return {layer.data, layer.dim, layer.every, layer.block_stride,
          placed_.blocks(layer.cache_class)};
}

}  // namespace lm
