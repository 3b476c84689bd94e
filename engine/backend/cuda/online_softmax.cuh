// Attention's bookkeeping: what a query has seen of a run of positions, and how two runs merge
// (backend.h, Attention).
#ifndef LM_ENGINE_BACKEND_CUDA_ONLINE_SOFTMAX_H_
#define LM_ENGINE_BACKEND_CUDA_ONLINE_SOFTMAX_H_

#include "engine/backend/cuda/host_device.cuh"

namespace lm::cuda {

// The greatest score, the sum of exp(score - max), and one of the values weighted by the same.
struct SoftmaxPartial {
  float max;
  float sum;
  float value;
};

// Adds a position of weight exp(score - max); `scaled` is the weight times the scale of the value.
LM_HOST_DEVICE void AddPosition(float weight, float scaled, float value, SoftmaxPartial* partial) {
  partial->sum += weight;
  partial->value = fmaf(scaled, value, partial->value);
}

// Adds the positions that come after those of `total`.
LM_HOST_DEVICE void MergePartial(const SoftmaxPartial& next, SoftmaxPartial* total) {
  float max = fmaxf(total->max, next.max);
  float keep = expf(total->max - max);
  float add = expf(next.max - max);
  total->max = max;
  total->sum = total->sum * keep + next.sum * add;
  total->value = total->value * keep + next.value * add;
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_ONLINE_SOFTMAX_H_
