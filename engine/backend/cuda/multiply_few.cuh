// Products of 16-bit weights with 9 to 64 tokens, whose input does not fit beside the weights in
// shared memory (multiply_streamed.cuh): a thread block makes the 16 rows of a panel, and each of
// its eight warps one slice of K (unit_product.cuh). A warp asks for the codes of one or two units
// before it multiplies them; other warps' requests are under way meanwhile.
#ifndef LM_ENGINE_BACKEND_CUDA_MULTIPLY_FEW_H_
#define LM_ENGINE_BACKEND_CUDA_MULTIPLY_FEW_H_

#include "engine/backend/cuda/slice_sums.cuh"

namespace lm::cuda {

// Units that a warp asks for at a time: as there are registers for.
constexpr int UnitsAtATime(int tiles) { return tiles <= 2 ? 2 : 1; }

// Thread blocks that a multiprocessor is to have.
constexpr int FewBlocks(int tiles) { return tiles <= 4 ? 2 : 1; }

// The rows of a panel times the tokens from a tile on, for StoreSliceSums.
template <DType kType, int kTiles>
__device__ __forceinline__ void SumFew(const PackedWeights& w, const PackedInput& x, int64_t panel,
                                       int first_tile, SliceSums<kTiles>& sums) {
  static_assert(!kPackedFormat<kType>.quantised());
  constexpr int kUnits = UnitsAtATime(kTiles);
  const int lane = threadIdx.x % kWarp, slice = threadIdx.x / kWarp;
  const int last_tile = static_cast<int>((x.tokens - 1) / kTileTokens);
  const int begin = static_cast<int>(min(slice * SliceUnits(x.units), x.units));
  const int end = static_cast<int>(min(begin + SliceUnits(x.units), x.units));
  const auto once = [](const auto* from) { return LoadOnce(from); };

  UnitCodes<kType> codes[kUnits];
  auto read = [&](int first) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      if (first + u >= end) break;
      codes[u].Read(w.codes<kType>(w.shape.Unit(panel, first + u)), nullptr, lane, once);
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
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          BlockInput<kType> input;
          input.Read(x.unit<kType>(min(first_tile + n, last_tile), first + u), lane, i);
          AddSixteen<kType>(a, input, acc[n]);
        }
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kTiles; ++n) KeepSliceSum<kTiles>(acc[n], slice, lane, n, sums);
  __syncthreads();
}

template <DType kType, int kTiles>
__global__ __launch_bounds__(kSliceThreads,
                             FewBlocks(kTiles)) void MultiplyFewKernel(PackedWeights w,
                                                                       PackedInput x,
                                                                       ProductOutput to) {
  __shared__ SliceSums<kTiles> sums;
  LetNextKernelBegin();
  const int first_tile = static_cast<int>(blockIdx.y) * kTiles;
  SumFew<kType, kTiles>(w, x, blockIdx.x, first_tile, sums);
  StoreSliceSums<kTiles>(w, x, to, blockIdx.x, first_tile, sums);
}

// Of the experts: a group of slots has kTiles tiles.
template <DType kType, int kTiles>
__global__ __launch_bounds__(kSliceThreads, FewBlocks(kTiles)) void MultiplyFewOfExpertsKernel(
    PackedWeights w, PackedInput x, ProductOutput to, ExpertProducts experts) {
  __shared__ SliceSums<kTiles> sums;
  BeginKernel();
  if (!TakeInput<kType>(experts, blockIdx.y, &w, &x)) return;
  SumFew<kType, kTiles>(w, x, blockIdx.x, 0, sums);
  TakeOutput(experts, blockIdx.y, &w, &x, &to);
  StoreSliceSums<kTiles>(w, x, to, blockIdx.x, 0, sums);
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_MULTIPLY_FEW_H_
