// Products with few tokens, which wait for the weights: a thread block makes the 16 rows of a panel
// and up to 64 tokens, and each of its eight warps one slice of K (unit_product.cuh). What the next
// units' codes are is asked for before these are multiplied.
#ifndef LM_ENGINE_BACKEND_CUDA_MULTIPLY_FEW_H_
#define LM_ENGINE_BACKEND_CUDA_MULTIPLY_FEW_H_

#include "engine/backend/cuda/unit_product.cuh"

namespace lm::cuda {

constexpr int kFewThreads = kSlices * kWarp;

template <DType kType, int kTiles>
__global__ __launch_bounds__(kFewThreads, kTiles <= 4 ? 2 : 1) void MultiplyFewKernel(
    PackedWeights w, PackedInput x, ProductOutput to) {
  constexpr PackedFormat kFormat = kPackedFormat<kType>;
  // Units asked for at a time: 64 bytes a lane, or where the sums need many registers less.
  constexpr int kBytes = kTiles <= 2 ? 2048 : 1024;
  constexpr int kUnits = kFormat.code_bytes() >= kBytes ? 1 : kBytes / kFormat.code_bytes();
  constexpr int kTokens = kTiles * kTileTokens;
  __shared__ float partial[kSlices][kPanelRows][kTokens + 1];

  const int lane = threadIdx.x % kWarp, slice = threadIdx.x / kWarp;
  const int64_t panel = blockIdx.x, first_tile = int64_t{blockIdx.y} * kTiles;
  const int64_t last_tile = (x.tokens - 1) / kTileTokens;
  const int64_t begin = min(slice * SliceUnits(x.units), x.units);
  const int64_t end = min(begin + SliceUnits(x.units), x.units);
  const auto once = [](const auto* from) { return LoadOnce(from); };
  const auto cached = [](const auto* from) { return *from; };

  UnitCodes<kType> next[kUnits];
  auto ask = [&](int64_t first) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      if (first + u >= end) break;
      const int64_t unit = w.shape.Unit(panel, first + u);
      next[u].Read(w.codes<kType>(unit), w.high<kType>(unit), lane, once);
    }
  };
  float acc[kTiles][4] = {};
  ask(begin);
  for (int64_t first = begin; first < end; first += kUnits) {
    UnitCodes<kType> codes[kUnits];
#pragma unroll
    for (int u = 0; u < kUnits; ++u) codes[u] = next[u];
    ask(first + kUnits);
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int64_t of_panel = first + u;
      if (of_panel >= end) break;
      const int64_t unit = w.shape.Unit(panel, of_panel);
      if constexpr (kFormat.quantised()) {
        const char* record = w.scales<kType>(unit) + lane / 4 * kFormat.record();
        const char* super = kFormat.supers() ? w.supers(panel, of_panel) + lane / 4 * 8 : nullptr;
        BlockScales scales[2];
#pragma unroll
        for (int b = 0; b < 2; ++b) scales[b] = LoadBlockScales<kType>(record, super, b);
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          UnitInput<kType> input;
          input.Read(x.unit<kType>(min(first_tile + n, last_tile), of_panel), lane, cached);
#pragma unroll
          for (int b = 0; b < 2; ++b) {
            uint32_t a[4];
            codes[u].Fragment(b, a);
            AddBlock<kType>(a, scales[b], input, b, acc[n]);
          }
        }
      } else {
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          UnitInput<kType> input;
          input.Read(x.unit<kType>(min(first_tile + n, last_tile), of_panel), lane, cached);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            uint32_t a[4];
            codes[u].Fragment(i, a);
            AddSixteen<kType>(a, input, i, acc[n]);
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
  for (int i = threadIdx.x; i < kPanelRows * kTokens; i += kFewThreads) {
    const int r = i % kPanelRows, t = i / kPanelRows;
    const int64_t row = panel * kPanelRows + r, token = first_tile * kTileTokens + t;
    if (row >= w.rows || token >= x.tokens) continue;
    float sum = 0;
#pragma unroll
    for (int s = 0; s < kSlices; ++s) sum += partial[s][r][t];
    to.Store(w, x, token, row, sum);
  }
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_MULTIPLY_FEW_H_
