// Products with many tokens, which wait for arithmetic: a thread block makes 128 rows (8 panels)
// and 64 tokens (8 tiles), unit by unit through shared memory, into which the next units are copied
// meanwhile. Its eight warps have 2 panels and 4 tiles each; what is added at the end of a slice
// stays in shared memory.
//
// F16 weights and so many tokens wait for L2, which every block asks for its rows and tokens: of
// large products a block makes 128 tokens, by itself on a multiprocessor, and has in registers what
// it adds up. (Quantised weights wait for instructions; BF16's input is twice as large.)
#ifndef LM_ENGINE_BACKEND_CUDA_MULTIPLY_MANY_H_
#define LM_ENGINE_BACKEND_CUDA_MULTIPLY_MANY_H_

#include "engine/backend/cuda/unit_product.cuh"

namespace lm::cuda {

constexpr int kManyPanels = 8, kManyTiles = 8, kWideTiles = 16;
constexpr int kWarpPanels = 2;
constexpr int kManyThreads = 256;

// Where the parts of a stage begin in shared memory.
template <DType kType, int kTiles>
struct ManyStage {
  static constexpr PackedFormat kFormat = kPackedFormat<kType>;
  static constexpr int kWarpTiles = kTiles / 2;
  static constexpr bool kWide = kTiles > kManyTiles;
  // Of the input only what the type's kernels read.
  static constexpr int kInputBytes =
      !kFormat.quantised() ? InputUnitBytes(kFormat) : kInputScales + 64 * kInputNumbers<kType>;
  static constexpr int kHigh = kManyPanels * kFormat.code_bytes();
  static constexpr int kScales = kHigh + kManyPanels * kFormat.high_bytes();
  static constexpr int kSupers = kScales + kManyPanels * kFormat.scale_bytes();
  static constexpr int kInput = kSupers + kManyPanels * kFormat.super_bytes();
  static constexpr int kBytes = kInput + kTiles * kInputBytes;
  static constexpr int kTotals =
      kWide ? 0 : kManyThreads * kWarpPanels * kWarpTiles * int{sizeof(float4)};
  static constexpr int AllBytes(int stages) { return kTotals + stages * kBytes; }
  static constexpr int kMostBytes = 99 << 10;  // of a thread block of compute capability 8.9
  static constexpr int kMostStages = AllBytes(4) <= kMostBytes   ? 4
                                     : AllBytes(3) <= kMostBytes ? 3
                                                                 : 2;
  static_assert(AllBytes(kMostStages) <= kMostBytes);

  // Whether a multiprocessor with so much shared memory has room for two blocks.
  static constexpr bool TwoFit(int stages, int64_t multiprocessor_bytes) {
    constexpr int kReserved = 1 << 10;  // of each block
    return 2 * (AllBytes(stages) + kReserved) <= multiprocessor_bytes;
  }
  // Of compute capability 9.0 and of 8.0. Where a stage fewer has two blocks fit an A100, too, they
  // have that there (Q8_0: 84 KB a block, 71 with three stages).
  static constexpr int64_t kLargeBytes = 228 << 10, kSmallBytes = 164 << 10;
  static constexpr int kFewestStages = !kWide && kMostStages > 2 &&
                                               TwoFit(kMostStages, kLargeBytes) &&
                                               !TwoFit(kMostStages, kSmallBytes) &&
                                               TwoFit(kMostStages - 1, kSmallBytes)
                                           ? kMostStages - 1
                                           : kMostStages;
  // Whether it has the fewest stages there; 0: it is not known how much there is.
  static bool HasFewest(int64_t multiprocessor_bytes) {
    return multiprocessor_bytes > 0 && !TwoFit(kMostStages, multiprocessor_bytes) &&
           TwoFit(kFewestStages, multiprocessor_bytes);
  }
};

// The sums of a thread's slices, by panel and tile.
template <DType kType, int kTiles>
class ManyTotals {
 public:
  static constexpr int kWarpTiles = ManyStage<kType, kTiles>::kWarpTiles;

  __device__ __forceinline__ ManyTotals() {
#pragma unroll
    for (int m = 0; m < kWarpPanels; ++m) {
#pragma unroll
      for (int n = 0; n < kWarpTiles; ++n) At(m, n) = {0, 0, 0, 0};
    }
  }
  __device__ __forceinline__ float4& At(int m, int n) {
    if constexpr (ManyStage<kType, kTiles>::kWide) return own_[m * kWarpTiles + n];
    return reinterpret_cast<float4*>(
        DynamicShared())[(m * kWarpTiles + n) * kManyThreads + threadIdx.x];
  }

 private:
  float4 own_[ManyStage<kType, kTiles>::kWide ? kWarpPanels * kWarpTiles : 1];
};

// A thread's part in copying runs of kBytes, one a panel or tile, of unit after unit.
template <int kBytes, int kRuns>
struct RunCopies {
  static constexpr int kPieces = kBytes / 16, kAll = kRuns * kPieces;
  static constexpr int kOwn = (kAll + kManyThreads - 1) / kManyThreads;
  const char* from[kOwn > 0 ? kOwn : 1];

  // start(run): where it begins.
  template <typename Start>
  __device__ __forceinline__ void Begin(Start start) {
#pragma unroll
    for (int c = 0; c < kOwn; ++c) {
      const int i = threadIdx.x + c * kManyThreads;
      from[c] = i < kAll ? start(i / kPieces) + i % kPieces * 16 : nullptr;
    }
  }
  // Copies, and goes on to the unit that is `stride` bytes behind.
  __device__ __forceinline__ void Copy(char* shared, int stride) {
#pragma unroll
    for (int c = 0; c < kOwn; ++c) {
      const int i = threadIdx.x + c * kManyThreads;
      if (i >= kAll) break;
      BeginCopy(shared + i * 16, from[c]);
      from[c] += stride;
    }
  }
};
template <int kRuns>
struct RunCopies<0, kRuns> {
  template <typename Start>
  __device__ __forceinline__ void Begin(Start) {}
  __device__ __forceinline__ void Copy(char*, int) {}
};

// The rows of eight panels times the tokens from a tile on, for StoreMany. (The number of stages
// changes no bit.)
template <DType kType, int kTiles, int kStages>
__device__ __forceinline__ void SumMany(const PackedWeights& w, const PackedInput& x,
                                        int64_t first_panel, int64_t first_tile,
                                        ManyTotals<kType, kTiles>* totals) {
  using Stage = ManyStage<kType, kTiles>;
  constexpr PackedFormat kFormat = kPackedFormat<kType>;
  constexpr int kWarpTiles = Stage::kWarpTiles;
  char* const stages = DynamicShared() + Stage::kTotals;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int warp_panel = warp / 2 * kWarpPanels, warp_tile = warp % 2 * kWarpTiles;
  const int64_t last_panel = w.shape.panels - 1, last_tile = (x.tokens - 1) / kTileTokens;

  RunCopies<kFormat.code_bytes(), kManyPanels> code_copies;
  RunCopies<kFormat.high_bytes(), kManyPanels> high_copies;
  RunCopies<kFormat.scale_bytes(), kManyPanels> scale_copies;
  RunCopies<kFormat.super_bytes(), kManyPanels> super_copies;
  RunCopies<Stage::kInputBytes, kTiles> input_copies;
  auto first_unit = [&](int p) { return w.shape.Unit(min(first_panel + p, last_panel), 0); };
  code_copies.Begin([&](int p) { return w.codes<kType>(first_unit(p)); });
  high_copies.Begin([&](int p) { return w.high<kType>(first_unit(p)); });
  scale_copies.Begin([&](int p) { return w.scales<kType>(first_unit(p)); });
  super_copies.Begin([&](int p) { return w.supers(min(first_panel + p, last_panel), 0); });
  input_copies.Begin([&](int t) { return x.unit<kType>(min(first_tile + t, last_tile), 0); });
  // Each to be called for unit after unit; a unit is a group of copies, which its input ends.
  const int units = static_cast<int>(x.units), of_slice = static_cast<int>(SliceUnits(units));
  auto fill_weights = [&](int unit) {
    if (unit < units) {
      char* stage = stages + unit % kStages * Stage::kBytes;
      code_copies.Copy(stage, Stage::kFormat.code_bytes());
      high_copies.Copy(stage + Stage::kHigh, Stage::kFormat.high_bytes());
      scale_copies.Copy(stage + Stage::kScales, Stage::kFormat.scale_bytes());
      super_copies.Copy(stage + Stage::kSupers,
                        (unit + 1) % kUnitsOfSuper == 0 ? Stage::kFormat.super_bytes() : 0);
    }
  };
  auto fill_input = [&](int unit) {
    if (unit < units) {
      char* stage = stages + unit % kStages * Stage::kBytes;
      input_copies.Copy(stage + Stage::kInput, InputUnitBytes(Stage::kFormat));
    }
    EndCopyGroup();
  };

  const auto shared = [](const auto* from) { return *from; };
  float acc[kWarpPanels][kWarpTiles][4] = {};
  for (int i = 0; i < kStages - 1; ++i) fill_weights(i);
  WaitForKernelBefore();
  for (int i = 0; i < kStages - 1; ++i) fill_input(i);
  int left = of_slice;
  for (int unit = 0; unit < units; ++unit) {
    WaitForCopies<kStages - 2>();
    __syncthreads();  // all have arrived, and the unit before has been read
    fill_weights(unit + kStages - 1);
    fill_input(unit + kStages - 1);
    const char* stage = stages + unit % kStages * Stage::kBytes;
#pragma unroll
    for (int i = 0; i < kUnitBlocks<kType>; ++i) {
      BlockInput<kType> input[kWarpTiles];
#pragma unroll
      for (int n = 0; n < kWarpTiles; ++n) {
        input[n].Read(stage + Stage::kInput + (warp_tile + n) * Stage::kInputBytes, lane, i);
      }
#pragma unroll
      for (int m = 0; m < kWarpPanels; ++m) {
        const int p = warp_panel + m;
        UnitCodes<kType> codes;
        codes.ReadFor(i, stage + p * kFormat.code_bytes(),
                      stage + Stage::kHigh + p * kFormat.high_bytes(), lane, shared);
        uint32_t a[4];
        codes.Fragment(i, a);
        BlockScales scales;
        if constexpr (kFormat.quantised()) {
          scales = LoadBlockScales<kType>(
              stage + Stage::kScales + p * kFormat.scale_bytes() + lane / 4 * kFormat.record(),
              stage + Stage::kSupers + p * kFormat.super_bytes() + lane / 4 * 8, i);
        }
#pragma unroll
        for (int n = 0; n < kWarpTiles; ++n) {
          if constexpr (kFormat.quantised()) {
            AddBlock<kType>(a, scales, input[n], acc[m][n]);
          } else {
            AddSixteen<kType>(a, input[n], acc[m][n]);
          }
        }
      }
    }
    if (--left > 0 && unit + 1 < units) continue;
    left = of_slice;
#pragma unroll
    for (int m = 0; m < kWarpPanels; ++m) {
#pragma unroll
      for (int n = 0; n < kWarpTiles; ++n) {
        const float4 total = totals->At(m, n);
        float(&sum)[4] = acc[m][n];
        totals->At(m, n) = {total.x + sum[0], total.y + sum[1], total.z + sum[2], total.w + sum[3]};
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i] = 0;
      }
    }
  }
}

template <DType kType, int kTiles>
__device__ __forceinline__ void StoreMany(const PackedWeights& w, const PackedInput& x,
                                          const ProductOutput& to, int64_t first_panel,
                                          int64_t first_tile, ManyTotals<kType, kTiles>* totals) {
  constexpr int kWarpTiles = ManyStage<kType, kTiles>::kWarpTiles;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int warp_panel = warp / 2 * kWarpPanels, warp_tile = warp % 2 * kWarpTiles;
#pragma unroll
  for (int m = 0; m < kWarpPanels; ++m) {
#pragma unroll
    for (int n = 0; n < kWarpTiles; ++n) {
      const float4 total = totals->At(m, n);
      const float sums[4] = {total.x, total.y, total.z, total.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t row = (first_panel + warp_panel + m) * kPanelRows + lane / 4 + i / 2 * 8;
        const int64_t token = (first_tile + warp_tile + n) * kTileTokens + lane % 4 * 2 + i % 2;
        if (row < w.rows && token < x.tokens) to.Store(w, x, token, row, sums[i]);
      }
    }
  }
}

template <DType kType, int kTiles, int kStages>
__global__ __launch_bounds__(kManyThreads, ManyStage<kType, kTiles>::kWide
                                               ? 1
                                               : 2) void MultiplyManyKernel(PackedWeights w,
                                                                            PackedInput x,
                                                                            ProductOutput to) {
  const int64_t first_panel = int64_t{blockIdx.x} * kManyPanels;
  const int64_t first_tile = int64_t{blockIdx.y} * kTiles;
  ManyTotals<kType, kTiles> totals;
  SumMany<kType, kTiles, kStages>(w, x, first_panel, first_tile, &totals);
  StoreMany(w, x, to, first_panel, first_tile, &totals);
}

// Of the experts: a group of slots has kManyTiles tiles.
template <DType kType, int kStages>
__global__ __launch_bounds__(kManyThreads,
                             2) void MultiplyManyOfExpertsKernel(PackedWeights w, PackedInput x,
                                                                 ProductOutput to,
                                                                 ExpertProducts experts) {
  WaitForKernelBefore();
  const int64_t first_panel = int64_t{blockIdx.x} * kManyPanels;
  if (!TakeInput<kType>(experts, blockIdx.y, &w, &x)) return;
  ManyTotals<kType, kManyTiles> totals;
  SumMany<kType, kManyTiles, kStages>(w, x, first_panel, 0, &totals);
  TakeOutput(experts, blockIdx.y, &w, &x, &to);
  StoreMany(w, x, to, first_panel, 0, &totals);
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_MULTIPLY_MANY_H_
