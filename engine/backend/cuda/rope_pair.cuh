// One rotary pair, and one value of the paged cache.
#ifndef LM_ENGINE_BACKEND_CUDA_ROPE_PAIR_H_
#define LM_ENGINE_BACKEND_CUDA_ROPE_PAIR_H_

#include "engine/backend/cuda/host_device.cuh"

namespace lm::cuda {

// (a, b) -> (a cos - b sin, a sin + b cos), each product and sum rounded.
LM_HOST_DEVICE void RotatePair(float cos, float sin, float* a, float* b) {
  float rotated_a = *a * cos - *b * sin;
  float rotated_b = *a * sin + *b * cos;
  *a = rotated_a;
  *b = rotated_b;
}

// Where pair i of a head lies: its first value, and how far on its second is.
struct PairPlace {
  int64_t first;
  int64_t step;
};
LM_HOST_DEVICE PairPlace PlaceOfPair(bool halves, int64_t i, int64_t rope_dim) {
  return halves ? PairPlace{i, rope_dim / 2} : PairPlace{2 * i, 1};
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_ROPE_PAIR_H_
