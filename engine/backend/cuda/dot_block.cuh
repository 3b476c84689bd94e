// The product of 32 quantised weights and 32 quantised activations, as numeric_contract.h specifies
// it to the bit (MatMul): a few terms x * y that are added in order with fmaf.
#ifndef LM_ENGINE_BACKEND_CUDA_DOT_BLOCK_H_
#define LM_ENGINE_BACKEND_CUDA_DOT_BLOCK_H_

#include "engine/backend/cuda/weight_block.cuh"

namespace lm::cuda {

// 32 activations: x ~ s * q. q is packed four to a word.
struct ActivationBlock {
  int32_t q[8];
  float s;
  int16_t sum[2];  // of q, for each half
};

// s and the factor that makes q of x, from the largest magnitude's bits (NaN above infinity).
struct ActivationScale {
  float s;
  float inverse;  // 0: all q are 0
};

LM_HOST_DEVICE ActivationScale ScaleActivations(uint32_t max_bits) {
  constexpr uint32_t kInfinity = 0x7f800000u;
  if (max_bits >= kInfinity) return {BitsToFloat(0x7fc00000u), 0.0f};
  float max = BitsToFloat(max_bits);
  float inverse = 127.0f / max;
  if (FloatToBits(inverse) == kInfinity) return {0.0f, 0.0f};
  return {max / 127.0f, inverse};
}

LM_HOST_DEVICE int QuantizeActivation(float x, ActivationScale scale) {
  return scale.inverse == 0.0f ? 0 : static_cast<int>(rintf(x * scale.inverse));
}

struct Term {
  float x;
  float y;
};

template <DType kType>
inline constexpr int kNumTerms = 1 + kWeightFormat<kType>.minima;

template <DType kType>
LM_HOST_DEVICE void DotBlock(const WeightBlock& w, const ActivationBlock& x,
                             Term (&terms)[kNumTerms<kType>]) {
  constexpr WeightFormat kFormat = kWeightFormat<kType>;
  int sum[2] = {-kFormat.offset * x.sum[0], -kFormat.offset * x.sum[1]};
  for (int i = 0; i < 8; ++i) sum[i / 4] = Dp4a(w.codes[i], x.q[i], sum[i / 4]);
  if constexpr (kFormat.half_scales) {
    const float first = static_cast<float>(w.scale[0]) * static_cast<float>(sum[0]);
    const float second = static_cast<float>(w.scale[1]) * static_cast<float>(sum[1]);
    terms[0] = {first + second, w.d * x.s};
  } else {
    float scale = w.d * static_cast<float>(w.scale[0]);
    terms[0] = {static_cast<float>(sum[0] + sum[1]), scale * x.s};
  }
  if constexpr (kFormat.minima == 1) {
    terms[1] = {w.m * static_cast<float>(w.min[0]), x.s * static_cast<float>(x.sum[0] + x.sum[1])};
  }
  if constexpr (kFormat.minima == 2) {
    for (int half = 0; half < 2; ++half) {
      terms[1 + half] = {w.m * static_cast<float>(w.min[half]),
                         x.s * static_cast<float>(x.sum[half])};
    }
  }
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_DOT_BLOCK_H_
