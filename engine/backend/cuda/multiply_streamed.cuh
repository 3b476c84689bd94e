// Products that wait for their weights: a thread block makes one or two panels of 16 rows after the
// other, each of its eight warps one slice of K (unit_product.cuh), and has the next steps on their
// way through shared memory all the time, also while the kernel before is at work
// (kernel_order.cuh), and while it packs its input, adds up the slices and stores.
//
// One token is packed by each block, where it can be (PacksOwnInput, own_input.cuh). Of more, whose
// packing would take the blocks longer than a kernel before them, the input comes along with the
// weights: once for all panels that a block makes at a time, as there is no other memory that is
// read so often.
#ifndef LM_ENGINE_BACKEND_CUDA_MULTIPLY_STREAMED_H_
#define LM_ENGINE_BACKEND_CUDA_MULTIPLY_STREAMED_H_

#include "engine/backend/cuda/own_input.cuh"
#include "engine/backend/cuda/slice_sums.cuh"

namespace lm::cuda {

static_assert(kSliceThreads == kNormThreads, "a block packs its input");

// Thread blocks of a launch: two a multiprocessor of the GPUs that have most of them.
inline constexpr int64_t kStreamBlocks = 264;

// What a block makes at a time.
template <int kThePanels, int kTheTiles, bool kTheOwnInput>
struct StreamShape {
  static constexpr int kPanels = kThePanels;
  static constexpr int kTiles = kTheTiles;
  static constexpr bool kOwnInput = kTheOwnInput;  // of one token
};
using StreamOne = StreamShape<1, 1, true>;
template <int kPanels, int kTiles>
using StreamTiles = StreamShape<kPanels, kTiles, false>;

// What a block has in shared memory: a ring of steps for each warp, the partial sums of two passes,
// and the token that it packs.
template <DType kType, typename Shape>
struct StreamStage {
  static constexpr PackedFormat kFormat = kPackedFormat<kType>;
  // Steps of a unit, each a stage of the ring: two of 16-bit weights, which are twice as large.
  static constexpr int kSteps = kFormat.quantised() ? 1 : 2;
  static constexpr int kBlocks = kUnitBlocks<kType> / kSteps;
  // Of a panel.
  static constexpr int kHigh = kFormat.code_bytes() / kSteps;
  static constexpr int kScales = kHigh + kFormat.high_bytes();
  static constexpr int kSupers = kScales + kFormat.scale_bytes();
  static constexpr int kPanel = kSupers + kFormat.super_bytes();
  // Of all panels, then of a tile and of all, as far as the type's kernels read them.
  static constexpr int kInput = Shape::kPanels * kPanel;
  static constexpr int kInputBytes = Shape::kOwnInput ? 0
                                     : !kFormat.quantised()
                                         ? InputUnitBytes(kFormat) / kSteps
                                         : kInputScales + 64 * kInputNumbers<kType>;
  static constexpr int kPartBytes = kInputBytes / InputParts(kFormat);
  static constexpr int kBytes = kInput + Shape::kTiles * kInputBytes;

  // Tiles whose slices are added up at a time.
  static constexpr int kPassTiles = Shape::kTiles < 2 ? 1 : 2;
  using Partials = SliceSums<kPassTiles>;
  static constexpr int kMostBytes = 99 << 10;  // a thread block's, on compute capability 8.9
  static constexpr int kMostOwn = !Shape::kOwnInput ? 0
                                  : kFormat.quantised()
                                      ? kMostOwnBytes
                                      : kMostOwnCols16 / kUnitCols * OwnUnitBytes(kFormat, 0);
  static constexpr int kBeforeOwn =
      Shape::kOwnInput ? kNormWarps * int{sizeof(double)} + kOwnFront : 0;
  static constexpr int kOthers = 2 * int{sizeof(Partials)} + kBeforeOwn + kMostOwn;
  static constexpr int kMostStages = (kMostBytes - kOthers) / (kSlices * kBytes);
  // About 64 KB of weights.
  static constexpr int kAhead = (64 << 10) / (kSlices * kInput);
  static constexpr int kWantedStages = kAhead < 3 ? 3 : kAhead > 8 ? 8 : kAhead;
  static constexpr int kStages = kWantedStages < kMostStages ? kWantedStages : kMostStages;
  static_assert(kStages >= 2);
  static constexpr int kRing = kSlices * kStages * kBytes;
  static constexpr int kSums = kRing + 2 * int{sizeof(Partials)};
  static constexpr int kOwn = kSums + kBeforeOwn;
  static_assert(kOwn + kMostOwn <= kMostBytes);
};

// A lane's part in copying its warp's steps of weights, one panel's slice after the other's, or
// those of some panels at a time.
template <DType kType, typename Shape>
class WeightStream {
 public:
  // The steps [begin, end) of the panels [panel, end_panel), of which there may be none.
  __device__ __forceinline__ WeightStream(const PackedWeights& w, int panel, int end_panel,
                                          int begin, int end)
      : lane_(threadIdx.x % kWarp),
        steps_(static_cast<int>(w.shape.units) * Stage::kSteps),
        begin_(begin),
        end_(end),
        step_(begin),
        panel_(panel),
        panels_(begin < end ? end_panel - panel : 0),
        codes_(w.codes<kType>(0) + lane_ * 16) {
    // Behind the codes a lane has one more piece, if any.
    constexpr int kHighs = kFormat.high_bytes() / 16, kScales = kFormat.scale_bytes() / 16;
    static_assert(kHighs + kScales + kFormat.super_bytes() / 16 <= kWarp);
    of_supers_ = lane_ >= kHighs + kScales;
    if (lane_ < kHighs) {
      rest_ = w.high<kType>(0) + lane_ * 16;
      rest_stride_ = kFormat.high_bytes();
    } else if (!of_supers_) {
      rest_ = w.scales<kType>(0) + (lane_ - kHighs) * 16;
      rest_stride_ = kFormat.scale_bytes();
    } else {
      rest_ = w.supers(0, 0) + (lane_ - kHighs - kScales) * 16;
      rest_stride_ = kFormat.super_bytes();
    }
  }

  // Begins to copy the next step, if there is one.
  __device__ __forceinline__ void Fill(char* stage) {
    if (panels_ <= 0) return;
#pragma unroll
    for (int p = 0; p < Shape::kPanels; ++p) {
      if (p < panels_) FillPanel(panel_ + p, stage + p * Stage::kPanel + lane_ * 16);
    }
    if (++step_ == end_) {
      step_ = begin_;
      panel_ += Shape::kPanels;
      panels_ -= Shape::kPanels;
    }
  }

 private:
  using Stage = StreamStage<kType, Shape>;
  static constexpr PackedFormat kFormat = kPackedFormat<kType>;

  __device__ __forceinline__ void FillPanel(int panel, char* to) {
    int number = panel * steps_ + step_;
    const char* codes = codes_ + int64_t{number} * Stage::kHigh;
#pragma unroll
    for (int i = 0; i < Stage::kHigh; i += kWarp * 16) BeginCopy(to + i, codes + i);
    if (lane_ >= (Stage::kPanel - Stage::kHigh) / 16) return;
    if constexpr (kFormat.supers()) {
      const int of_panel = (steps_ + kUnitsOfSuper - 1) / kUnitsOfSuper;
      if (of_supers_) number = panel * of_panel + step_ / kUnitsOfSuper;
    }
    BeginCopy(to + Stage::kHigh, rest_ + int64_t{number} * rest_stride_);
  }

  const int lane_, steps_, begin_, end_;
  int step_, panel_;
  int panels_;  // that are left
  const char* const codes_;
  const char* rest_;
  int rest_stride_;
  bool of_supers_;
};

// The same of the input, whose steps are those of each panel: of the tiles from one on, as many as
// there are; of a tile by itself only the tokens that there are.
template <DType kType, typename Shape>
class InputStream {
 public:
  __device__ __forceinline__ InputStream(const PackedInput& x, int first_tile, int panels,
                                         int begin, int end)
      : lane_(threadIdx.x % kWarp),
        begin_(begin),
        end_(end),
        step_(begin),
        left_((panels + Shape::kPanels - 1) / Shape::kPanels * (end - begin)),
        tiles_(static_cast<int>(x.tokens + kTileTokens - 1) / kTileTokens - first_tile),
        has_token_(Shape::kTiles > 1 || lane_ * 16 % kTokensBytes < x.tokens * kTokenBytes),
        tile_stride_(static_cast<int>(x.units) * kUnitBytes),
        input_(x.unit<kType>(first_tile, 0) + lane_ * 16) {}

  __device__ __forceinline__ void Fill(char* stage) {
    if (left_ <= 0) return;
#pragma unroll
    for (int n = 0; n < Shape::kTiles; ++n) {
      if (n >= tiles_) break;
      char* to = stage + Stage::kInput + n * Stage::kInputBytes + lane_ * 16;
      const char* from = input_ + int64_t{n} * tile_stride_ + step_ / Stage::kSteps * kUnitBytes +
                         step_ % Stage::kSteps * Stage::kPartBytes;
#pragma unroll
      for (int part = 0; part < InputParts(kFormat); ++part) {
#pragma unroll
        for (int i = 0; i < Stage::kPartBytes; i += kWarp * 16) {
          if (i < kCodeBytes && !has_token_) continue;
          if (i + lane_ * 16 < Stage::kPartBytes) BeginCopy(to + i, from + i);
        }
        to += Stage::kPartBytes;
        from += Stage::kPartBytes * Stage::kSteps;
      }
    }
    --left_;
    if (++step_ == end_) step_ = begin_;
  }

 private:
  using Stage = StreamStage<kType, Shape>;
  static constexpr PackedFormat kFormat = kPackedFormat<kType>;
  static constexpr int kUnitBytes = InputUnitBytes(kFormat);
  // Of a block of quantised values, or 16 columns of others, which a tile's tokens have in order.
  static constexpr int kTokensBytes = 256, kTokenBytes = kTokensBytes / kTileTokens;
  static constexpr int kCodeBytes = kFormat.quantised() ? kInputScales : Stage::kPartBytes;

  const int lane_, begin_, end_;
  int step_;
  int left_;  // steps
  const int tiles_;
  const bool has_token_;
  const int tile_stride_;
  const char* const input_;
};

// The panels [first_panel, end_panel) of w times the tiles of x from one on; with kOwnInput times
// the first row of `input`, x having no data.
template <DType kType, typename Shape>
__device__ __forceinline__ void MultiplyStreamed(const PackedWeights& w, const PackedInput& x,
                                                 const InputRows& input, const ProductOutput& to,
                                                 int first_panel, int end_panel, int first_tile) {
  using Stage = StreamStage<kType, Shape>;
  constexpr PackedFormat kFormat = kPackedFormat<kType>;
  const int lane = threadIdx.x % kWarp, slice = threadIdx.x / kWarp;
  char* const ring = DynamicShared() + slice * Stage::kStages * Stage::kBytes;
  char* const last_stage = ring + (Stage::kStages - 1) * Stage::kBytes;
  auto* const partials =
      reinterpret_cast<typename Stage::Partials*>(DynamicShared() + Stage::kRing);
  const int units = static_cast<int>(x.units), of_slice = static_cast<int>(SliceUnits(units));
  const int begin = min(slice * of_slice, units) * Stage::kSteps;
  const int end = min(begin + of_slice * Stage::kSteps, units * Stage::kSteps);

  // Each stage is a group of copies; of the first ones the weights are asked for at once.
  WeightStream<kType, Shape> weights(w, first_panel, end_panel, begin, end);
  InputStream<kType, Shape> inputs(x, first_tile, Shape::kOwnInput ? 0 : end_panel - first_panel,
                                   begin, end);
  for (char* stage = ring; stage < last_stage; stage += Stage::kBytes) {
    weights.Fill(stage);
    if constexpr (Shape::kOwnInput) EndCopyGroup();
  }
  WaitForKernelBefore();
  PackedInput stored = x;
  if constexpr (Shape::kOwnInput) {
    if constexpr (!kFormat.quantised()) {
      stored.inverse_factors =
          reinterpret_cast<const float*>(DynamicShared() + Stage::kOwn - kOwnFront);
    }
    PackOwnInput<kType>(input, units, reinterpret_cast<double*>(DynamicShared() + Stage::kSums),
                        DynamicShared() + Stage::kOwn);
    __syncthreads();
  } else {
    for (char* stage = ring; stage < last_stage; stage += Stage::kBytes) {
      inputs.Fill(stage);
      EndCopyGroup();
    }
  }

  constexpr int kOwnBytes = OwnUnitBytes(kFormat, kInputNumbers<kType>) / Stage::kSteps;
  const auto shared = [](const auto* from) { return *from; };
  char *stage = ring, *before = last_stage;
  int pass = 0;
  for (int panel = first_panel; panel < end_panel; panel += Shape::kPanels) {
    float acc[Shape::kPanels][Shape::kTiles][4] = {};
    const char* own = DynamicShared() + Stage::kOwn + begin * kOwnBytes;
    for (int step = begin; step < end; ++step) {
      WaitForCopies<Stage::kStages - 2>();
      __syncwarp();  // all lanes' have arrived, and the step before has been read
      weights.Fill(before);
      if constexpr (!Shape::kOwnInput) inputs.Fill(before);
      EndCopyGroup();
      UnitCodes<kType> codes[Shape::kPanels];
      UnitScales<kType> scales[Shape::kPanels];
#pragma unroll
      for (int p = 0; p < Shape::kPanels; ++p) {
        const char* from = stage + p * Stage::kPanel;
        codes[p].template Read<Stage::kSteps>(from, from + Stage::kHigh, lane, shared);
        if constexpr (kFormat.quantised()) {
          scales[p].Read(from + Stage::kScales + lane / 4 * kFormat.record(),
                         from + Stage::kSupers + lane / 4 * 8);
        }
      }
#pragma unroll
      for (int i = 0; i < Stage::kBlocks; ++i) {
        BlockInput<kType> tiles[Shape::kTiles];
        if constexpr (Shape::kOwnInput) {
          tiles[0] = ReadOwnInput<kType>(own, lane, i);
        } else {
#pragma unroll
          for (int n = 0; n < Shape::kTiles; ++n) {
            tiles[n].template Read<Stage::kPartBytes>(
                stage + Stage::kInput + n * Stage::kInputBytes, lane, i);
          }
        }
#pragma unroll
        for (int p = 0; p < Shape::kPanels; ++p) {
          uint32_t a[4];
          codes[p].Fragment(i, a);
          BlockScales block;
          if constexpr (kPackedFormat<kType>.quantised()) block = scales[p].Load(i);
#pragma unroll
          for (int n = 0; n < Shape::kTiles; ++n) {
            if constexpr (kPackedFormat<kType>.quantised()) {
              AddBlock<kType, Shape::kOwnInput ? 1 : 2>(a, block, tiles[n], acc[p][n]);
            } else {
              AddSixteen<kType>(a, tiles[n], acc[p][n]);
            }
          }
        }
      }
      own += kOwnBytes;
      before = stage;
      stage = stage == last_stage ? ring : stage + Stage::kBytes;
    }
    // Two by turns: one barrier is enough between those who write and those who read.
#pragma unroll
    for (int p = 0; p < Shape::kPanels; ++p) {
      if (panel + p >= end_panel) break;
#pragma unroll
      for (int n = 0; n < Shape::kTiles; n += Stage::kPassTiles) {
        if (n > 0 && (first_tile + n) * kTileTokens >= x.tokens) break;
        typename Stage::Partials& partial = partials[pass++ % 2];
#pragma unroll
        for (int m = 0; m < Stage::kPassTiles; ++m) {
          KeepSliceSum<Stage::kPassTiles>(acc[p][n + m], slice, lane, m, partial);
        }
        __syncthreads();
        StoreSliceSums<Stage::kPassTiles>(w, stored, to, panel + p, first_tile + n, partial);
      }
    }
  }
}

template <DType kType, typename Shape>
__global__ __launch_bounds__(kSliceThreads,
                             2) void MultiplyStreamedKernel(PackedWeights w, PackedInput x,
                                                            InputRows input, ProductOutput to,
                                                            int panels_of_block) {
  const int first = static_cast<int>(blockIdx.x) * panels_of_block;
  const int end = min(first + panels_of_block, static_cast<int>(w.shape.panels));
  MultiplyStreamed<kType, Shape>(w, x, input, to, first, end, blockIdx.y * Shape::kTiles);
}

// Of the experts, which kernels before have chosen: a group of slots has Shape::kTiles tiles. With
// kOwnInput it has one slot, but where a row's experts are given and one is there twice.
template <DType kType, typename Shape>
__global__ __launch_bounds__(kSliceThreads, 2) void MultiplyStreamedOfExpertsKernel(
    PackedWeights w, PackedInput x, InputRows input, ProductOutput to, ExpertProducts experts,
    int panels_of_block) {
  WaitForKernelBefore();
  if (!TakeInput<kType>(experts, blockIdx.y, &w, &x)) return;
  TakeOutput(experts, blockIdx.y, &w, &x, &to);
  const int first = static_cast<int>(blockIdx.x) * panels_of_block;
  const int end = min(first + panels_of_block, static_cast<int>(w.shape.panels));
  if constexpr (Shape::kOwnInput) {
    const SlotGroup slots = experts.groups[blockIdx.y];
    input.x.data += slots.first * input.x.stride;
    x.tokens = 1;
    for (int slot = 0; slot < slots.count; ++slot) {
      MultiplyStreamed<kType, Shape>(w, x, input, to, first, end, 0);
      __syncthreads();  // what lies in shared memory has been read
      input.x.data += input.x.stride;
      to.out.data += to.out.stride;
    }
  } else {
    MultiplyStreamed<kType, Shape>(w, x, input, to, first, end, 0);
  }
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_MULTIPLY_STREAMED_H_
