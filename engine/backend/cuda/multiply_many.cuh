// Products with many tokens, which wait for arithmetic: a thread block makes 128 rows (8 panels)
// and 64 tokens (8 tiles), unit by unit through shared memory, into which the next units are copied
// meanwhile. Its eight warps have 2 panels and 4 tiles each.
#ifndef LM_ENGINE_BACKEND_CUDA_MULTIPLY_MANY_H_
#define LM_ENGINE_BACKEND_CUDA_MULTIPLY_MANY_H_

#include "engine/backend/cuda/unit_product.cuh"

namespace lm::cuda {

constexpr int kManyPanels = 8, kManyTiles = 8;
constexpr int kWarpPanels = 2, kWarpTiles = 4;
constexpr int kManyThreads = 256;

// Where the parts of a stage begin in shared memory.
template <DType kType>
struct ManyStage {
  static constexpr PackedFormat kFormat = kPackedFormat<kType>;
  // Of the input only what the type's kernels read.
  static constexpr int kInputBytes =
      !kFormat.quantised() ? InputUnitBytes(kFormat)
                           : kInputScales + 64 * (!kFormat.minima ? 1 : !kFormat.halves() ? 2 : 3);
  static constexpr int kHigh = kManyPanels * kFormat.code_bytes();
  static constexpr int kScales = kHigh + kManyPanels * kFormat.high_bytes();
  static constexpr int kSupers = kScales + kManyPanels * kFormat.scale_bytes();
  static constexpr int kInput = kSupers + kManyPanels * kFormat.super_bytes();
  static constexpr int kBytes = kInput + kManyTiles * kInputBytes;
  static constexpr int kStages = kBytes * 4 <= 96 << 10 ? 4 : 3;
  static constexpr int kAllBytes = kStages * kBytes;
  static_assert(kAllBytes <= 99 << 10, "what a thread block of compute capability 8.9 can have");
};

template <DType kType>
__global__ __launch_bounds__(kManyThreads, 2) void MultiplyManyKernel(PackedWeights w,
                                                                     PackedInput x,
                                                                     ProductOutput to) {
  using Stage = ManyStage<kType>;
  constexpr PackedFormat kFormat = kPackedFormat<kType>;
  char* const stages = DynamicShared();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int warp_panel = warp / 2 * kWarpPanels, warp_tile = warp % 2 * kWarpTiles;
  const int64_t first_panel = int64_t{blockIdx.x} * kManyPanels;
  const int64_t first_tile = int64_t{blockIdx.y} * kManyTiles;
  const int64_t last_panel = w.shape.panels - 1, last_tile = (x.tokens - 1) / kTileTokens;

  // Copies `count` runs of kRunBytes, one a panel or tile.
  auto copy = [&](auto run_bytes, auto from, char* shared) {
    constexpr int kPieces = decltype(run_bytes)::value / 16;
    for (int i = threadIdx.x; i < 8 * kPieces; i += kManyThreads) {
      BeginCopy(shared + i * 16, from(i / kPieces) + i % kPieces * 16);
    }
  };
  auto fill = [&](int64_t unit) {
    if (unit < x.units) {
      char* stage = stages + unit % Stage::kStages * Stage::kBytes;
      auto panel_unit = [&](int p) { return w.shape.Unit(min(first_panel + p, last_panel), unit); };
      copy(std::integral_constant<int, Stage::kFormat.code_bytes()>(),
           [&](int p) { return w.codes<kType>(panel_unit(p)); }, stage);
      if constexpr (Stage::kFormat.high_bytes() > 0) {
        copy(std::integral_constant<int, Stage::kFormat.high_bytes()>(),
             [&](int p) { return w.high<kType>(panel_unit(p)); }, stage + Stage::kHigh);
      }
      if constexpr (Stage::kFormat.scale_bytes() > 0) {
        copy(std::integral_constant<int, Stage::kFormat.scale_bytes()>(),
             [&](int p) { return w.scales<kType>(panel_unit(p)); }, stage + Stage::kScales);
      }
      if constexpr (Stage::kFormat.supers()) {
        copy(std::integral_constant<int, Stage::kFormat.super_bytes()>(),
             [&](int p) { return w.supers(min(first_panel + p, last_panel), unit); },
             stage + Stage::kSupers);
      }
      copy(std::integral_constant<int, Stage::kInputBytes>(),
           [&](int t) { return x.unit<kType>(min(first_tile + t, last_tile), unit); },
           stage + Stage::kInput);
    }
    EndCopyGroup();
  };

  const auto shared = [](const auto* from) { return *from; };
  float acc[kWarpPanels][kWarpTiles][4] = {}, totals[kWarpPanels][kWarpTiles][4] = {};
  for (int i = 0; i < Stage::kStages - 1; ++i) fill(i);
  int64_t left = SliceUnits(x.units);  // of the slice
  for (int64_t unit = 0; unit < x.units; ++unit) {
    WaitForCopies<Stage::kStages - 2>();
    __syncthreads();  // all have arrived, and the unit before has been read
    fill(unit + Stage::kStages - 1);
    const char* stage = stages + unit % Stage::kStages * Stage::kBytes;
    UnitInput<kType> input[kWarpTiles];
#pragma unroll
    for (int n = 0; n < kWarpTiles; ++n) {
      input[n].Read(stage + Stage::kInput + (warp_tile + n) * Stage::kInputBytes, lane, shared);
    }
#pragma unroll
    for (int m = 0; m < kWarpPanels; ++m) {
      const int p = warp_panel + m;
      UnitCodes<kType> codes;
      codes.Read(stage + p * kFormat.code_bytes(), stage + Stage::kHigh + p * kFormat.high_bytes(),
                 lane, shared);
      if constexpr (kFormat.quantised()) {
        const char* record =
            stage + Stage::kScales + p * kFormat.scale_bytes() + lane / 4 * kFormat.record();
        const char* super = stage + Stage::kSupers + p * kFormat.super_bytes() + lane / 4 * 8;
#pragma unroll
        for (int b = 0; b < 2; ++b) {
          const BlockScales scales = LoadBlockScales<kType>(record, super, b);
          uint32_t a[4];
          codes.Fragment(b, a);
#pragma unroll
          for (int n = 0; n < kWarpTiles; ++n) {
            AddBlock<kType>(a, scales, input[n], b, acc[m][n]);
          }
        }
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          uint32_t a[4];
          codes.Fragment(i, a);
#pragma unroll
          for (int n = 0; n < kWarpTiles; ++n) AddSixteen<kType>(a, input[n], i, acc[m][n]);
        }
      }
    }
    if (--left > 0 && unit + 1 < x.units) continue;
    left = SliceUnits(x.units);
#pragma unroll
    for (int m = 0; m < kWarpPanels; ++m) {
#pragma unroll
      for (int n = 0; n < kWarpTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          totals[m][n][i] += acc[m][n][i];
          acc[m][n][i] = 0;
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kWarpPanels; ++m) {
#pragma unroll
    for (int n = 0; n < kWarpTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t row = (first_panel + warp_panel + m) * kPanelRows + lane / 4 + i / 2 * 8;
        const int64_t token = (first_tile + warp_tile + n) * kTileTokens + lane % 4 * 2 + i % 2;
        if (row < w.rows && token < x.tokens) to.Store(w, x, token, row, totals[m][n][i]);
      }
    }
  }
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_MULTIPLY_MANY_H_
