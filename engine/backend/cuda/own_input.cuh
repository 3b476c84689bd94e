// The input of a product of one token, which each thread block packs for itself into its shared
// memory: a kernel less before the product, and the input is asked for at once.
//
// Units of 64 columns stand side by side, like a tile's (packed_input.cuh) with one token:
//   [block 2][lane 4][b 2] words of four int8
//   [block 2] s, then likewise the sum of q, and that of the first half, as far as the type of the
//   weights needs them
#ifndef LM_ENGINE_BACKEND_CUDA_OWN_INPUT_H_
#define LM_ENGINE_BACKEND_CUDA_OWN_INPUT_H_

#include "engine/backend/cuda/op_arithmetic.cuh"
#include "engine/backend/cuda/quantize_value.cuh"
#include "engine/backend/cuda/row_norm.cuh"
#include "engine/backend/cuda/unit_product.cuh"

namespace lm::cuda {

constexpr int OwnUnitBytes(int numbers) { return kUnitCols + 8 * numbers; }

// A lane's part of block i of a unit; what is no column of the token's is zeros.
template <DType kType>
__device__ __forceinline__ BlockInput<kType> ReadOwnInput(const char* unit, int lane, int i) {
  constexpr PackedFormat kFormat = kPackedFormat<kType>;
  BlockInput<kType> input;
  input.b[0] = lane < 4 ? reinterpret_cast<const uint2*>(unit)[4 * i + lane] : uint2{0, 0};
  const auto* numbers = reinterpret_cast<const float*>(unit + kUnitCols) + i;
  input.s.x = numbers[0];
  if constexpr (kFormat.minima) input.sums.x = numbers[2];
  if constexpr (kFormat.minima && kFormat.halves()) input.firsts.x = numbers[4];
  return input;
}

// A lane packs four values at a time, eight lanes a block of 32.
constexpr int kQuad = 4, kBlockLanes = 8, kWarpBlocks = kWarp / kBlockLanes;

// Four values of the row, and what is needed beside them: the norm's weights, or what is gated.
struct QuadOfRow {
  float4 x, other;

  __device__ __forceinline__ void Read(const InputRows& input, int64_t column) {
    x = other = {0, 0, 0, 0};
    if (column >= input.cols) return;
    x = *reinterpret_cast<const float4*>(input.x.data + column);
    const float* from = input.kind == InputKind::kNormed  ? input.norm.weight + column
                        : input.kind == InputKind::kGated ? input.x.data + input.cols + column
                                                          : nullptr;
    if (from != nullptr) other = *reinterpret_cast<const float4*>(from);
  }

  // What they stand for.
  __device__ __forceinline__ void Form(const InputRows& input, const RowNorm& norm, int64_t column,
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

// Packs a lane's values of block i of a unit, as PackInput does. Nothing is stored where there is
// no unit; the block may be behind the columns that there are.
template <DType kType>
__device__ __forceinline__ void PackQuad(const float (&values)[kQuad], bool exists, int lane, int i,
                                         char* unit) {
  constexpr int kNumbers = kInputNumbers<kType>;
  uint32_t max_bits = 0;
#pragma unroll
  for (int j = 0; j < kQuad; ++j) max_bits = max(max_bits, FloatToBits(values[j]) & 0x7fffffffu);
#pragma unroll
  for (int apart = 1; apart < kBlockLanes; apart *= 2) {
    max_bits = max(max_bits, __shfl_xor_sync(~0u, max_bits, apart));
  }
  const ActivationScale scale = ScaleActivations(max_bits);
  uint32_t word = 0;
#pragma unroll
  for (int j = 0; j < kQuad; ++j) {
    word |= (static_cast<uint32_t>(QuantizeActivation(values[j], scale)) & 255u) << (8 * j);
  }
  int half = 0, other = 0;  // sums, of which a half's four lanes have one
  if constexpr (kNumbers > 1) {
    half = Dp4a(static_cast<int32_t>(word), 0x01010101, 0);
#pragma unroll
    for (int apart = 1; apart < kBlockLanes / 2; apart *= 2) {
      half += __shfl_xor_sync(~0u, half, apart);
    }
    other = __shfl_xor_sync(~0u, half, kBlockLanes / 2);
  }
  if (unit == nullptr) return;
  const int own = lane % kBlockLanes;
  reinterpret_cast<uint32_t*>(unit)[i * 8 + own % 4 * 2 + own / 4] = word;
  if (own > 0) return;
  float* numbers = reinterpret_cast<float*>(unit + kUnitCols) + i;
  numbers[0] = exists ? scale.s : 0.0f;
  if constexpr (kNumbers > 1) numbers[2] = static_cast<float>(half + other);
  if constexpr (kNumbers > 2) numbers[4] = static_cast<float>(half);
}

// Packs the first row of the input to `to`, by a thread block of kNormThreads threads, which may
// read it behind a barrier. `sums` has kNormWarps values. REQUIRES: PacksOwnInput (kernels.h).
template <DType kType>
__device__ __forceinline__ void PackOwnInput(const InputRows& input, int64_t units, double* sums,
                                             char* to) {
  constexpr int kAtATime = 2, kStep = kNormWarps * kWarpBlocks;
  const int lane = threadIdx.x % kWarp;
  const RowNorm norm =
      input.kind == InputKind::kNormed ? FindNorm(input.norm, input.x.data, sums) : RowNorm{};
  const int64_t own_block = threadIdx.x / kBlockLanes;
  for (int64_t first = 0; first < 2 * units; first += kAtATime * kStep) {
    QuadOfRow quads[kAtATime];
#pragma unroll
    for (int n = 0; n < kAtATime; ++n) {
      quads[n].Read(input, (first + own_block + n * kStep) * 32 + lane % kBlockLanes * kQuad);
    }
#pragma unroll
    for (int n = 0; n < kAtATime; ++n) {
      const int64_t block = first + own_block + n * kStep;
      const int64_t column = block * 32 + lane % kBlockLanes * kQuad;
      const bool exists = column < input.cols;  // whole blocks
      float values[kQuad] = {};
      if (exists) quads[n].Form(input, norm, column, values);
      char* unit =
          block < 2 * units ? to + block / 2 * OwnUnitBytes(kInputNumbers<kType>) : nullptr;
      PackQuad<kType>(values, exists, lane, static_cast<int>(block % 2), unit);
    }
  }
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_OWN_INPUT_H_
