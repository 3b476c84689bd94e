// The sums of slices of K (unit_product.cuh), which a thread block's eight warps have: they are
// added up through shared memory in ascending order, and stored.
#ifndef LM_ENGINE_BACKEND_CUDA_SLICE_SUMS_H_
#define LM_ENGINE_BACKEND_CUDA_SLICE_SUMS_H_

#include "engine/backend/cuda/unit_product.cuh"

namespace lm::cuda {

constexpr int kSliceThreads = kSlices * kWarp;

// Of a panel's rows and the tokens of some tiles.
template <int kTiles>
using SliceSums = float[kSlices][kPanelRows][kTiles * kTileTokens + 1];

// Puts a lane's sums, a fragment C, where those of its slice and tile are.
template <int kTiles>
__device__ __forceinline__ void KeepSliceSum(const float (&acc)[4], int slice, int lane, int tile,
                                             SliceSums<kTiles>& sums) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums[slice][lane / 4 + i / 2 * 8][tile * kTileTokens + lane % 4 * 2 + i % 2] = acc[i];
  }
}

// By all threads of the block, behind a barrier.
template <int kTiles>
__device__ __forceinline__ void StoreSliceSums(const PackedWeights& w, const PackedInput& x,
                                               const ProductOutput& to, int64_t panel,
                                               int first_tile, const SliceSums<kTiles>& sums) {
  constexpr int kTokens = kTiles * kTileTokens;
  for (int i = threadIdx.x; i < kPanelRows * kTokens; i += kSliceThreads) {
    const int r = i % kPanelRows, t = i / kPanelRows;
    const int64_t row = panel * kPanelRows + r, token = int64_t{first_tile} * kTileTokens + t;
    if (row >= w.rows || token >= x.tokens) continue;
    float sum = 0;
#pragma unroll
    for (int s = 0; s < kSlices; ++s) sum += sums[s][r][t];
    to.Store(w, x, token, row, sum);
  }
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_SLICE_SUMS_H_
