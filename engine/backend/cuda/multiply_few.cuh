// Products with few tokens, which wait for the weights: a thread block makes the 16 rows of a panel
// and up to 64 tokens, and each of its eight warps one slice of K (unit_product.cuh). A warp asks
// for several units at a time, codes and scales, before it multiplies them; other warps' requests
// are under way meanwhile.
#ifndef LM_ENGINE_BACKEND_CUDA_MULTIPLY_FEW_H_
#define LM_ENGINE_BACKEND_CUDA_MULTIPLY_FEW_H_

#include "engine/backend/cuda/unit_product.cuh"

namespace lm::cuda {

constexpr int kFewThreads = kSlices * kWarp;

// Units that a warp asks for at a time: as many as there are registers for, four at most. Types
// whose scales take more to unpack have fewer, so that none spills
// (tests/benchmarks/cuda_kernels.py).
constexpr int UnitsAtATime(const PackedFormat& format, int tiles) {
  const bool tight = (tiles == 1 && format.supers()) || (tiles == 4 && format.halves());
  const int bytes = (tiles <= 2 ? 160 : 80) / (tight ? 2 : 1);
  const int unit = (format.code_bytes() + format.high_bytes()) / kWarp + format.record() +
                   (format.supers() ? 8 : 0) + (format.minima ? 8 : 0);
  return bytes / unit < 1 ? 1 : bytes / unit > 4 ? 4 : bytes / unit;
}

// Thread blocks that a multiprocessor is to have.
constexpr int FewBlocks(int tiles) { return tiles == 1 ? 3 : tiles <= 4 ? 2 : 1; }

// The slices' sums, added up at the end.
template <int kTiles>
using FewPartials = float[kSlices][kPanelRows][kTiles * kTileTokens + 1];

// The rows of a panel times the tokens from a tile on, for StoreFew.
template <DType kType, int kTiles, int kUnits>
__device__ __forceinline__ void SumFew(const PackedWeights& w, const PackedInput& x, int64_t panel,
                                       int first_tile, FewPartials<kTiles>& partial) {
  const int lane = threadIdx.x % kWarp, slice = threadIdx.x / kWarp;
  const int last_tile = static_cast<int>((x.tokens - 1) / kTileTokens);
  const int begin = static_cast<int>(min(slice * SliceUnits(x.units), x.units));
  const int end = static_cast<int>(min(begin + SliceUnits(x.units), x.units));
  const auto once = [](const auto* from) { return LoadOnce(from); };

  UnitCodes<kType> codes[kUnits];
  UnitScales<kType> scales[kUnits];
  auto read = [&](int first) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      if (first + u >= end) break;
      const int64_t unit = w.shape.Unit(panel, first + u);
      codes[u].Read(w.codes<kType>(unit), w.high<kType>(unit), lane, once);
      if constexpr (kPackedFormat<kType>.quantised()) {
        scales[u].Read(
            w.scales<kType>(unit) + lane / 4 * kPackedFormat<kType>.record(),
            kPackedFormat<kType>.supers() ? w.supers(panel, first + u) + lane / 4 * 8 : nullptr);
      }
    }
  };

  read(begin);
  WaitForKernelBefore();
  float acc[kTiles][4] = {};
  for (int first = begin; first < end; first += kUnits) {
    if (first > begin) read(first);
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      if (first + u >= end) break;
#pragma unroll
      for (int i = 0; i < kUnitBlocks<kType>; ++i) {
        uint32_t a[4];
        codes[u].Fragment(i, a);
        BlockScales block;
        if constexpr (kPackedFormat<kType>.quantised()) block = scales[u].Load(i);
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          BlockInput<kType> input;
          const int tile = min(first_tile + n, last_tile);
          input.Read(x.unit<kType>(tile, first + u), lane, i,
                     kTiles > 1 || tile * kTileTokens + lane / 4 < x.tokens);
          if constexpr (kPackedFormat<kType>.quantised()) {
            AddBlock<kType>(a, block, input, acc[n]);
          } else {
            AddSixteen<kType>(a, input, acc[n]);
          }
        }
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      partial[slice][lane / 4 + i / 2 * 8][n * kTileTokens + lane % 4 * 2 + i % 2] = acc[n][i];
    }
  }
  __syncthreads();
}

template <int kTiles>
__device__ __forceinline__ void StoreFew(const PackedWeights& w, const PackedInput& x,
                                         const ProductOutput& to, int64_t panel, int first_tile,
                                         const FewPartials<kTiles>& partial) {
  constexpr int kTokens = kTiles * kTileTokens;
  for (int i = threadIdx.x; i < kPanelRows * kTokens; i += kFewThreads) {
    const int r = i % kPanelRows, t = i / kPanelRows;
    const int64_t row = panel * kPanelRows + r, token = int64_t{first_tile} * kTileTokens + t;
    if (row >= w.rows || token >= x.tokens) continue;
    float sum = 0;
#pragma unroll
    for (int s = 0; s < kSlices; ++s) sum += partial[s][r][t];
    to.Store(w, x, token, row, sum);
  }
}

template <DType kType, int kTiles>
__global__ __launch_bounds__(kFewThreads,
                             FewBlocks(kTiles)) void MultiplyFewKernel(PackedWeights w,
                                                                       PackedInput x,
                                                                       ProductOutput to) {
  __shared__ FewPartials<kTiles> partial;
  LetNextKernelBegin();
  const int first_tile = static_cast<int>(blockIdx.y) * kTiles;
  constexpr int kUnits = UnitsAtATime(kPackedFormat<kType>, kTiles);
  SumFew<kType, kTiles, kUnits>(w, x, blockIdx.x, first_tile, partial);
  StoreFew<kTiles>(w, x, to, blockIdx.x, first_tile, partial);
}

// Of the experts: a group of slots has kTiles tiles. What is taken of the group has registers of
// its own, which some types have to make room for, or they spill (cuda_kernels.py).
constexpr int UnitsOfExperts(const PackedFormat& format, int tiles) {
  const int units = UnitsAtATime(format, tiles);
  if (tiles == 1 && format.codes == Codes::kInt8) return units - 1;
  return tiles == 4 && format.supers() && format.minima ? 1 : units;
}

template <DType kType, int kTiles>
__global__ __launch_bounds__(kFewThreads, FewBlocks(kTiles)) void MultiplyFewOfExpertsKernel(
    PackedWeights w, PackedInput x, ProductOutput to, ExpertProducts experts) {
  __shared__ FewPartials<kTiles> partial;
  BeginKernel();
  if (!TakeInput<kType>(experts, blockIdx.y, &w, &x)) return;
  constexpr int kUnits = UnitsOfExperts(kPackedFormat<kType>, kTiles);
  SumFew<kType, kTiles, kUnits>(w, x, blockIdx.x, 0, partial);
  TakeOutput(experts, blockIdx.y, &w, &x, &to);
  StoreFew<kTiles>(w, x, to, blockIdx.x, 0, partial);
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_MULTIPLY_FEW_H_
