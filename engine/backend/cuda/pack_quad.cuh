// Four values of a row of a product's input at a time, eight lanes a block of 32: what they stand
// for (norm, activation) and how they are rounded to int8, as PackInput and the products of one
// token do it.
#ifndef LM_ENGINE_BACKEND_CUDA_PACK_QUAD_H_
#define LM_ENGINE_BACKEND_CUDA_PACK_QUAD_H_

#include "engine/backend/cuda/op_arithmetic.cuh"
#include "engine/backend/cuda/quantize_value.cuh"
#include "engine/backend/cuda/row_norm.cuh"

namespace lm::cuda {

constexpr int kQuad = 4, kBlockLanes = 8, kWarpBlocks = kWarp / kBlockLanes;
// Blocks that a thread block has at a time.
constexpr int kQuadBlocks = kNormWarps * kWarpBlocks;

// Whether a row's values can be read four at a time.
inline bool IsReadInQuads(const InputRows& input) {
  const auto is_aligned = [](const void* at) {
    return reinterpret_cast<uintptr_t>(at) % (kQuad * sizeof(float)) == 0;
  };
  if (!is_aligned(input.x.data) || input.x.stride % kQuad != 0 || input.cols % kQuad != 0) {
    return false;
  }
  return input.kind != InputKind::kNormed ||
         (is_aligned(input.norm.weight) && input.norm.weights == input.cols);
}

// Four values of the row, and what is needed beside them: the norm's weights, or what is gated.
struct QuadOfRow {
  float4 x, other;

  // Of `row`, which is one of the input's; zeros from `end` on. REQUIRES: IsReadInQuads.
  __device__ __forceinline__ void Read(const InputRows& input, const float* row, int column,
                                       int end) {
    x = other = {0, 0, 0, 0};
    if (column >= end) return;
    x = *reinterpret_cast<const float4*>(row + column);
    const float* from = input.kind == InputKind::kNormed  ? input.norm.weight + column
                        : input.kind == InputKind::kGated ? row + input.cols + column
                                                          : nullptr;
    if (from != nullptr) other = *reinterpret_cast<const float4*>(from);
  }

  // What they stand for.
  __device__ __forceinline__ void Form(const InputRows& input, const RowNorm& norm, int column,
                                       float (&values)[kQuad]) const {
    const float second[kQuad] = {other.x, other.y, other.z, other.w};
    values[0] = x.x;
    values[1] = x.y;
    values[2] = x.z;
    values[3] = x.w;
    if (input.kind == InputKind::kNormed) {
#pragma unroll
      for (int j = 0; j < kQuad; ++j) {
        values[j] = norm.Of(values[j], second[j]);
        if (input.norm.bias != nullptr) values[j] += input.norm.bias[column + j];
      }
    } else if (input.kind != InputKind::kPlain) {
#pragma unroll
      for (int j = 0; j < kQuad; ++j) {
        values[j] = Activate(input.activation, values[j]);
        if (input.kind == InputKind::kGated) values[j] *= GateFactor(input.activation, second[j]);
      }
    }
  }
};

// A lane's four values of a block, rounded, and what the block's eight lanes have in common.
struct PackedQuad {
  uint32_t word;
  float s;
  int first, second;  // sums of the block's halves, where they are asked for
};

template <bool kSums>
__device__ __forceinline__ PackedQuad PackQuad(const float (&values)[kQuad]) {
  uint32_t max_bits = 0;
#pragma unroll
  for (int j = 0; j < kQuad; ++j) max_bits = max(max_bits, FloatToBits(values[j]) & 0x7fffffffu);
#pragma unroll
  for (int apart = 1; apart < kBlockLanes; apart *= 2) {
    max_bits = max(max_bits, __shfl_xor_sync(~0u, max_bits, apart));
  }
  const ActivationScale scale = ScaleActivations(max_bits);
  PackedQuad packed = {0, scale.s, 0, 0};
#pragma unroll
  for (int j = 0; j < kQuad; ++j) {
    packed.word |= (static_cast<uint32_t>(QuantizeActivation(values[j], scale)) & 255u) << (8 * j);
  }
  if constexpr (kSums) {
    int half = Dp4a(static_cast<int32_t>(packed.word), 0x01010101, 0);
#pragma unroll
    for (int apart = 1; apart < kBlockLanes / 2; apart *= 2) {
      half += __shfl_xor_sync(~0u, half, apart);
    }
    const int other = __shfl_xor_sync(~0u, half, kBlockLanes / 2);
    const bool is_second = threadIdx.x % kBlockLanes >= kBlockLanes / 2;
    packed.first = is_second ? other : half;
    packed.second = is_second ? half : other;
  }
  return packed;
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_PACK_QUAD_H_
