// The input of a product of one token, which each thread block packs for itself into its shared
// memory: a kernel less before the product, and the input is asked for at once.
//
// Units of 64 columns stand side by side, like a tile's (packed_input.cuh) with one token:
//   [block 2][lane 4][b 2] words of four int8
//   [block 2] s, then likewise the sum of q, and that of the first half, as far as the type of the
//   weights needs them
// For 16-bit weights each half of a unit has, a part after the other,
//   [columns of 16: 2][lane 4][b 2] words of two values
#ifndef LM_ENGINE_BACKEND_CUDA_OWN_INPUT_H_
#define LM_ENGINE_BACKEND_CUDA_OWN_INPUT_H_

#include "engine/backend/cuda/pack_16.cuh"
#include "engine/backend/cuda/unit_product.cuh"

namespace lm::cuda {

constexpr int OwnUnitBytes(const PackedFormat& format, int numbers) {
  return format.quantised() ? kUnitCols + 8 * numbers : 2 * kUnitCols * InputParts(format);
}
constexpr int kOwnPartBytes = kUnitCols;  // of half a unit of 16-bit values

// What lies in front of it: its inverse factor, for 16-bit weights.
constexpr int kOwnFront = 16;

// A lane's part of block i of a unit, or of half of one; what is no column of the token's is zeros.
template <DType kType>
__device__ __forceinline__ BlockInput<kType> ReadOwnInput(const char* unit, int lane, int i) {
  constexpr PackedFormat kFormat = kPackedFormat<kType>;
  BlockInput<kType> input;
  if constexpr (!kFormat.quantised()) {
#pragma unroll
    for (int part = 0; part < InputParts(kFormat); ++part) {
      const auto* words = reinterpret_cast<const uint2*>(unit + part * kOwnPartBytes);
      input.b[part] = lane < 4 ? words[4 * i + lane] : uint2{0, 0};
    }
    return input;
  }
  input.b[0] = lane < 4 ? reinterpret_cast<const uint2*>(unit)[4 * i + lane] : uint2{0, 0};
  const auto* numbers = reinterpret_cast<const float*>(unit + kUnitCols) + i;
  input.s.x = numbers[0];
  if constexpr (kFormat.minima) input.sums.x = numbers[2];
  if constexpr (kFormat.minima && kFormat.halves()) input.firsts.x = numbers[4];
  return input;
}

// PackOwnInput for 16-bit weights.
template <DType kType>
__device__ __forceinline__ void PackOwnInput16(const InputRows& input, int64_t units, double* sums,
                                               char* to) {
  constexpr PackedFormat kFormat = kPackedFormat<kType>;
  constexpr int kStride = kNormThreads * kQuad, kQuads = kMostOwnCols16 / kStride;
  constexpr int kHalfUnit = kUnitCols / 2, kHalfBytes = InputParts(kFormat) * kOwnPartBytes;
  const int own = static_cast<int>(threadIdx.x) * kQuad;
  const int cols = static_cast<int>(input.cols), end = static_cast<int>(units) * kUnitCols;
  const float* row = input.x.data;
  QuadOfRow quads[kQuads];  // asked for before the norm is found
#pragma unroll
  for (int n = 0; n < kQuads; ++n) quads[n].Read(input, row, own + n * kStride, cols);
  const RowNorm norm =
      input.kind == InputKind::kNormed ? FindNorm(input.norm, row, sums) : RowNorm{};
  float values[kQuads][kQuad] = {};
  uint32_t max_bits = 0;
#pragma unroll
  for (int n = 0; n < kQuads; ++n) {
    const int column = own + n * kStride;
    if (column < cols) quads[n].Form(input, norm, column, values[n]);
    max_bits = GreatestMagnitude(max_bits, values[n]);
  }
  const float factor = FactorOfRow<kNormWarps>(max_bits, reinterpret_cast<uint32_t*>(sums));
  if (threadIdx.x == 0) *reinterpret_cast<float*>(to - kOwnFront) = 1.0f / factor;
#pragma unroll
  for (int n = 0; n < kQuads; ++n) {
    const int column = own + n * kStride;
    if (column >= end) break;
    StoreQuad16<kType == DType::kBF16, kOwnPartBytes>(
        values[n], factor, column,
        to + column / kHalfUnit * kHalfBytes + column % kHalfUnit / 16 * 32);
  }
}

// Packs the first row of the input to `to`, by a thread block of kNormThreads threads, which may
// read it behind a barrier. `sums` has kNormWarps values. REQUIRES: PacksOwnInput (kernels.h).
template <DType kType>
__device__ __forceinline__ void PackOwnInput(const InputRows& input, int64_t units, double* sums,
                                             char* to) {
  if constexpr (!kPackedFormat<kType>.quantised()) {
    return PackOwnInput16<kType>(input, units, sums, to);
  }
  constexpr int kAtATime = 2, kNumbers = kInputNumbers<kType>;
  const int own = threadIdx.x % kBlockLanes, own_block = threadIdx.x / kBlockLanes;
  const int blocks = static_cast<int>(2 * units);
  const int cols = static_cast<int>(input.cols);
  const float* row = input.x.data;
  QuadOfRow quads[kAtATime];  // asked for before the norm is found
  const auto read = [&](int first) {
#pragma unroll
    for (int n = 0; n < kAtATime; ++n) {
      quads[n].Read(input, row, (first + n * kQuadBlocks) * 32 + own * kQuad, cols);
    }
  };
  read(own_block);
  const RowNorm norm =
      input.kind == InputKind::kNormed ? FindNorm(input.norm, row, sums) : RowNorm{};
  for (int first = own_block; first - own_block < blocks; first += kAtATime * kQuadBlocks) {
    if (first > own_block) read(first);
#pragma unroll
    for (int n = 0; n < kAtATime; ++n) {
      const int block = first + n * kQuadBlocks, column = block * 32 + own * kQuad;
      const bool exists = column < cols;  // whole blocks
      float values[kQuad] = {};
      if (exists) quads[n].Form(input, norm, column, values);
      const PackedQuad packed = PackQuad<(kNumbers > 1)>(values);
      if (block >= blocks) continue;
      char* unit = to + block / 2 * OwnUnitBytes(kPackedFormat<kType>, kNumbers);
      reinterpret_cast<uint32_t*>(unit)[block % 2 * 8 + own % 4 * 2 + own / 4] = packed.word;
      if (own > 0) continue;
      float* numbers = reinterpret_cast<float*>(unit + kUnitCols) + block % 2;
      numbers[0] = exists ? packed.s : 0.0f;
      if constexpr (kNumbers > 1) numbers[2] = static_cast<float>(packed.first + packed.second);
      if constexpr (kNumbers > 2) numbers[4] = static_cast<float>(packed.first);
    }
  }
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_OWN_INPUT_H_
