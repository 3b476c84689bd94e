// Products with up to eight tokens, which wait for the weights: a thread block makes one panel of
// 16 rows after the other, each of its eight warps one slice of K (unit_product.cuh), and has the
// next units on their way through shared memory all the time, also while the kernel before is at
// work (kernel_order.cuh), and while it packs its input, adds up the slices and stores.
//
// One token is packed by each block (own_input.cuh). Of more, whose packing would take the blocks
// longer than a kernel before them, the units of the input come along with those of the weights.
#ifndef LM_ENGINE_BACKEND_CUDA_MULTIPLY_STREAMED_H_
#define LM_ENGINE_BACKEND_CUDA_MULTIPLY_STREAMED_H_

#include "engine/backend/cuda/multiply_few.cuh"
#include "engine/backend/cuda/own_input.cuh"

namespace lm::cuda {

static_assert(kFewThreads == kNormThreads, "a block packs its input");

// Thread blocks of a launch: two a multiprocessor of the GPUs that have most of them.
inline constexpr int64_t kStreamBlocks = 264;

// What a block has in shared memory: a ring of units for each warp, two panels' partial sums, and
// the token that it packs.
template <DType kType, bool kOwnInput>
struct StreamStage {
  static constexpr PackedFormat kFormat = kPackedFormat<kType>;
  static constexpr int kHigh = kFormat.code_bytes();
  static constexpr int kScales = kHigh + kFormat.high_bytes();
  static constexpr int kSupers = kScales + kFormat.scale_bytes();
  static constexpr int kInput = kSupers + kFormat.super_bytes();
  static constexpr int kInputBytes = kOwnInput ? 0 : kInputScales + 64 * kInputNumbers<kType>;
  static constexpr int kBytes = kInput + kInputBytes;
  // About 40 KB of weights.
  static constexpr int kUnits = (40 << 10) / (kSlices * kInput);
  static constexpr int kStages = kUnits < 3 ? 3 : kUnits > 8 ? 8 : kUnits;
  static constexpr int kRing = kSlices * kStages * kBytes;
  static constexpr int kSums = kRing + 2 * int{sizeof(FewPartials<1>)};
  static constexpr int kOwn = kSums + (kOwnInput ? kNormWarps * int{sizeof(double)} : 0);
  static_assert(kOwn + (kOwnInput ? kMostOwnBytes : 0) <= 99 << 10,
                "what a thread block of compute capability 8.9 can have");
};

// A lane's part in copying its warp's units of weights, one panel's slice after the other's.
template <DType kType, bool kOwnInput>
class WeightStream {
 public:
  // The units [begin, end) of the panels [panel, end_panel), of which there may be none.
  __device__ __forceinline__ WeightStream(const PackedWeights& w, int panel, int end_panel,
                                          int begin, int end)
      : lane_(threadIdx.x % kWarp),
        units_(static_cast<int>(w.shape.units)),
        begin_(begin),
        end_(end),
        unit_(begin),
        panel_(panel),
        panels_(begin < end ? end_panel - panel : 0),
        number_(panel * units_ + begin),
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

  // Begins to copy the next unit, if there is one.
  __device__ __forceinline__ void Fill(char* stage) {
    if (panels_ == 0) return;
    char* to = stage + lane_ * 16;
    const char* codes = codes_ + int64_t{number_} * kFormat.code_bytes();
#pragma unroll
    for (int i = 0; i < kFormat.code_bytes(); i += kWarp * 16) BeginCopy(to + i, codes + i);
    if (lane_ < (Stage::kInput - Stage::kHigh) / 16) {
      int number = number_;
      if constexpr (kFormat.supers()) {
        const int of_panel = (units_ + kUnitsOfSuper - 1) / kUnitsOfSuper;
        if (of_supers_) number = panel_ * of_panel + unit_ / kUnitsOfSuper;
      }
      BeginCopy(to + Stage::kHigh, rest_ + int64_t{number} * rest_stride_);
    }
    ++number_;
    if (++unit_ == end_) {
      number_ += units_ - (end_ - begin_);
      unit_ = begin_;
      ++panel_;
      --panels_;
    }
  }

 private:
  using Stage = StreamStage<kType, kOwnInput>;
  static constexpr PackedFormat kFormat = kPackedFormat<kType>;

  const int lane_, units_, begin_, end_;
  int unit_, panel_;
  int panels_;  // that are left
  int number_;  // of the unit, in the whole matrix
  const char* const codes_;
  const char* rest_;
  int rest_stride_;
  bool of_supers_;
};

// The same of the units of the input, which are those of each panel.
template <DType kType>
class InputStream {
 public:
  __device__ __forceinline__ InputStream(const PackedInput& x, int panels, int begin, int end)
      : begin_(begin),
        end_(end),
        unit_(begin),
        left_(panels * (end - begin)),
        input_(x.unit<kType>(0, 0) + threadIdx.x % kWarp * 16) {}

  __device__ __forceinline__ void Fill(char* stage) {
    if (left_ == 0) return;
    const int place = threadIdx.x % kWarp * 16;
    const char* input = input_ + unit_ * InputUnitBytes(kPackedFormat<kType>);
#pragma unroll
    for (int i = 0; i < Stage::kInputBytes; i += kWarp * 16) {
      if (i + place < Stage::kInputBytes) BeginCopy(stage + Stage::kInput + place + i, input + i);
    }
    --left_;
    if (++unit_ == end_) unit_ = begin_;
  }

 private:
  using Stage = StreamStage<kType, false>;

  const int begin_, end_;
  int unit_;
  int left_;
  const char* const input_;
};

// The panels [first_panel, end_panel) of w times all tokens of x; with kOwnInput times the first
// row of `input`, x having no data.
template <DType kType, bool kOwnInput>
__device__ __forceinline__ void MultiplyStreamed(const PackedWeights& w, const PackedInput& x,
                                                 const InputRows& input, const ProductOutput& to,
                                                 int first_panel, int end_panel) {
  using Stage = StreamStage<kType, kOwnInput>;
  constexpr PackedFormat kFormat = kPackedFormat<kType>;
  const int lane = threadIdx.x % kWarp, slice = threadIdx.x / kWarp;
  char* const ring = DynamicShared() + slice * Stage::kStages * Stage::kBytes;
  char* const last_stage = ring + (Stage::kStages - 1) * Stage::kBytes;
  auto* const partials = reinterpret_cast<FewPartials<1>*>(DynamicShared() + Stage::kRing);
  const int units = static_cast<int>(x.units), of_slice = static_cast<int>(SliceUnits(units));
  const int begin = min(slice * of_slice, units), end = min(begin + of_slice, units);

  // Each stage is a group of copies; of the first ones the weights are asked for at once.
  WeightStream<kType, kOwnInput> weights(w, first_panel, end_panel, begin, end);
  InputStream<kType> inputs(x, kOwnInput ? 0 : max(end_panel - first_panel, 0), begin, end);
  for (char* stage = ring; stage < last_stage; stage += Stage::kBytes) {
    weights.Fill(stage);
    if constexpr (kOwnInput) EndCopyGroup();
  }
  WaitForKernelBefore();
  if constexpr (kOwnInput) {
    PackOwnInput<kType>(input, units, reinterpret_cast<double*>(DynamicShared() + Stage::kSums),
                        DynamicShared() + Stage::kOwn);
    __syncthreads();
  } else {
    for (char* stage = ring; stage < last_stage; stage += Stage::kBytes) {
      inputs.Fill(stage);
      EndCopyGroup();
    }
  }

  constexpr int kOwnBytes = OwnUnitBytes(kInputNumbers<kType>);
  const auto shared = [](const auto* from) { return *from; };
  char *stage = ring, *before = last_stage;
  for (int panel = first_panel; panel < end_panel; ++panel) {
    float acc[4] = {};
    const char* own = DynamicShared() + Stage::kOwn + begin * kOwnBytes;
    for (int unit = begin; unit < end; ++unit) {
      WaitForCopies<Stage::kStages - 2>();
      __syncwarp();  // all lanes' have arrived, and the unit before has been read
      weights.Fill(before);
      if constexpr (!kOwnInput) inputs.Fill(before);
      EndCopyGroup();
      UnitCodes<kType> codes;
      UnitScales<kType> scales;
      codes.Read(stage, stage + Stage::kHigh, lane, shared);
      scales.Read(stage + Stage::kScales + lane / 4 * kFormat.record(),
                  stage + Stage::kSupers + lane / 4 * 8);
#pragma unroll
      for (int i = 0; i < kUnitBlocks<kType>; ++i) {
        uint32_t a[4];
        codes.Fragment(i, a);
        if constexpr (kOwnInput) {
          AddBlock<kType, 1>(a, scales.Load(i), ReadOwnInput<kType>(own, lane, i), acc);
        } else {
          BlockInput<kType> tile;
          tile.Read(stage + Stage::kInput, lane, i);
          AddBlock<kType>(a, scales.Load(i), tile, acc);
        }
      }
      own += kOwnBytes;
      before = stage;
      stage = stage == last_stage ? ring : stage + Stage::kBytes;
    }
    // Two by turns: one barrier is enough between those who write and those who read.
    FewPartials<1>& partial = partials[(panel - first_panel) % 2];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      partial[slice][lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = acc[i];
    }
    __syncthreads();
    StoreFew<1>(w, x, to, panel, 0, partial);
  }
}

template <DType kType, bool kOwnInput>
__global__ __launch_bounds__(kFewThreads,
                             2) void MultiplyStreamedKernel(PackedWeights w, PackedInput x,
                                                            InputRows input, ProductOutput to,
                                                            int panels_of_block) {
  LetNextKernelBegin();
  const int first = static_cast<int>(blockIdx.x) * panels_of_block;
  const int end = min(first + panels_of_block, static_cast<int>(w.shape.panels));
  MultiplyStreamed<kType, kOwnInput>(w, x, input, to, first, end);
}

// Of the experts: a group of slots has a tile. With kOwnInput it has one slot, but where a row's
// experts are given and one is there twice.
template <DType kType, bool kOwnInput>
__global__ __launch_bounds__(kFewThreads, 2) void MultiplyStreamedOfExpertsKernel(
    PackedWeights w, PackedInput x, InputRows input, ProductOutput to, ExpertProducts experts,
    int panels_of_block) {
  BeginKernel();
  if (!TakeInput<kType>(experts, blockIdx.y, &w, &x)) return;
  TakeOutput(experts, blockIdx.y, &w, &x, &to);
  const int first = static_cast<int>(blockIdx.x) * panels_of_block;
  const int end = min(first + panels_of_block, static_cast<int>(w.shape.panels));
  if constexpr (kOwnInput) {
    const SlotGroup slots = experts.groups[blockIdx.y];
    input.x.data += slots.first * input.x.stride;
    x.tokens = 1;
    for (int slot = 0; slot < slots.count; ++slot) {
      MultiplyStreamed<kType, true>(w, x, input, to, first, end);
      __syncthreads();  // what lies in shared memory has been read
      input.x.data += input.x.stride;
      to.out.data += to.out.stride;
    }
  } else {
    MultiplyStreamed<kType, false>(w, x, input, to, first, end);
  }
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_MULTIPLY_STREAMED_H_
