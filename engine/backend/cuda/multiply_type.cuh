// out = W x^T + bias of one type of packed weights, by the kernel that suits the number of tokens:
// all have the same bits. (Several .cu files share the types, to be compiled beside each other.)
#ifndef LM_ENGINE_BACKEND_CUDA_MULTIPLY_TYPE_H_
#define LM_ENGINE_BACKEND_CUDA_MULTIPLY_TYPE_H_

#include <algorithm>

#include "engine/backend/cuda/multiply_many.cuh"
#include "engine/backend/cuda/multiply_streamed.cuh"

namespace lm::cuda {

// Thread blocks that MultiplyManyKernel needs before it keeps a GPU busy.
inline constexpr int64_t kManyBlocks = 64;

// And so many of 128 tokens each, of which one is on a multiprocessor, for two rounds.
inline constexpr int64_t kWideBlocks = 256;

// A launch of kernels that stream: its blocks make some panels of one group of tiles each.
struct StreamLaunch {
  dim3 grid;
  int panels_of_block;
  int shared_bytes;
};

template <DType kType, typename Shape>
StreamLaunch PlanStream(const PackedWeights& w, const PackedInput& x, int64_t groups) {
  const int64_t at_a_time = DivideUp(w.shape.panels, Shape::kPanels);
  const int64_t of_block = std::min(DivideUp(at_a_time * groups, kStreamBlocks), at_a_time);
  const int64_t own_bytes =
      Shape::kOwnInput ? x.units * OwnUnitBytes(kPackedFormat<kType>, kInputNumbers<kType>) : 0;
  return {Grid(DivideUp(at_a_time, of_block), groups), static_cast<int>(of_block) * Shape::kPanels,
          StreamStage<kType, Shape>::kOwn + static_cast<int>(own_bytes)};
}

template <DType kType, typename Shape>
cudaError_t MultiplyStream(const Queue& queue, const PackedWeights& w, const PackedInput& x,
                           const InputRows& input, const ProductOutput& to) {
  const StreamLaunch launch =
      PlanStream<kType, Shape>(w, x, DivideUp(x.tokens, kTileTokens * Shape::kTiles));
  return LaunchShared(queue, MultiplyStreamedKernel<kType, Shape>, launch.grid, kSliceThreads,
                      launch.shared_bytes, w, x, input, to, launch.panels_of_block);
}

template <DType kType, typename Shape>
cudaError_t MultiplyStreamOfExperts(const Queue& queue, const PackedWeights& w,
                                    const PackedInput& x, const InputRows& input,
                                    const ProductOutput& to, const ExpertProducts& experts) {
  const StreamLaunch launch = PlanStream<kType, Shape>(w, x, experts.num_groups);
  return LaunchShared(queue, MultiplyStreamedOfExpertsKernel<kType, Shape>, launch.grid,
                      kSliceThreads, launch.shared_bytes, w, x, input, to, experts,
                      launch.panels_of_block);
}

// Types of which two panels and four tiles fit the registers (tests/benchmarks/cuda_kernels.py),
// and a block of compute capability 8.9.
template <DType kType>
inline constexpr bool kTwoPanels =
    kType == DType::kQ4_0 || kType == DType::kQ4_1 || kType == DType::kQ5_0 ||
    kType == DType::kQ8_0 || kType == DType::kQ4_K || kType == DType::kQ5_K ||
    kType == DType::kMXFP4 || kType == DType::kF16;

// Up to a tile, or several, but not enough for MultiplyManyKernel.
template <DType kType>
cudaError_t MultiplyTiles(const Queue& queue, const PackedWeights& w, const PackedInput& x,
                          const InputRows& input, const ProductOutput& to) {
  const int64_t tiles = DivideUp(x.tokens, kTileTokens);
  if (x.data == nullptr) return MultiplyStream<kType, StreamOne>(queue, w, x, input, to);
  if constexpr (kTwoPanels<kType>) {  // at a time, where there are some for all blocks
    if (w.shape.panels * DivideUp(tiles, 4) >= 2 * kStreamBlocks) {
      if (tiles <= 1) return MultiplyStream<kType, StreamTiles<2, 1>>(queue, w, x, input, to);
      return MultiplyStream<kType, StreamTiles<2, 4>>(queue, w, x, input, to);
    }
  }
  if (tiles <= 1) return MultiplyStream<kType, StreamTiles<1, 1>>(queue, w, x, input, to);
  return MultiplyStream<kType, StreamTiles<1, 4>>(queue, w, x, input, to);
}

// Calls `launch` with the integral_constant of how many stages a thread block has on the queue's
// device, and the bytes of its shared memory.
template <DType kType, int kTiles, typename Launch>
cudaError_t WithStages(const Queue& queue, Launch launch) {
  using Stage = ManyStage<kType, kTiles>;
  if constexpr (Stage::kFewestStages < Stage::kMostStages) {
    if (Stage::HasFewest(queue.multiprocessor_bytes)) {
      return launch(std::integral_constant<int, Stage::kFewestStages>(),
                    Stage::AllBytes(Stage::kFewestStages));
    }
  }
  return launch(std::integral_constant<int, Stage::kMostStages>(),
                Stage::AllBytes(Stage::kMostStages));
}

template <DType kType, int kTiles>
cudaError_t MultiplyMany(const Queue& queue, dim3 grid, const PackedWeights& w,
                         const PackedInput& x, const ProductOutput& to) {
  return WithStages<kType, kTiles>(queue, [&](auto stages, int shared_bytes) {
    return LaunchShared(queue, MultiplyManyKernel<kType, kTiles, stages>, grid, kManyThreads,
                        shared_bytes, w, x, to);
  });
}

template <DType kType>
cudaError_t MultiplyOfExperts(const Queue& queue, const PackedWeights& w, const PackedInput& x,
                              const InputRows& input, const ProductOutput& to,
                              const ExpertProducts& experts) {
  static_assert(kGroupSlots[0] == kTileTokens && kGroupSlots[1] == 4 * kTileTokens &&
                kGroupSlots[2] == kManyTiles * kTileTokens);
  if (experts.group_slots == kGroupSlots[0]) {
    if (x.data == nullptr) {
      return MultiplyStreamOfExperts<kType, StreamOne>(queue, w, x, input, to, experts);
    }
    return MultiplyStreamOfExperts<kType, StreamTiles<1, 1>>(queue, w, x, input, to, experts);
  }
  if (experts.group_slots == kGroupSlots[2]) {
    return WithStages<kType, kManyTiles>(queue, [&](auto stages, int shared_bytes) {
      return LaunchShared(queue, MultiplyManyOfExpertsKernel<kType, stages>,
                          Grid(DivideUp(w.shape.panels, kManyPanels), experts.num_groups),
                          kManyThreads, shared_bytes, w, x, to, experts);
    });
  }
  return MultiplyStreamOfExperts<kType, StreamTiles<1, 4>>(queue, w, x, input, to, experts);
}

template <DType kType>
cudaError_t MultiplyType(const Queue& queue, const PackedWeights& w, const PackedInput& x,
                         const InputRows& input, const ProductOutput& to,
                         const ExpertProducts* experts) {
  if (experts != nullptr) return MultiplyOfExperts<kType>(queue, w, x, input, to, *experts);
  const int64_t tiles = DivideUp(x.tokens, kTileTokens);
  const dim3 grid = Grid(DivideUp(w.shape.panels, kManyPanels), DivideUp(tiles, kManyTiles));
  if (tiles <= 4 || int64_t{grid.x} * grid.y < kManyBlocks) {
    return MultiplyTiles<kType>(queue, w, x, input, to);
  }
  if constexpr (kType == DType::kF16) {
    const dim3 wide = Grid(grid.x, DivideUp(tiles, kWideTiles));
    if (tiles >= kWideTiles && int64_t{wide.x} * wide.y >= kWideBlocks) {
      return MultiplyMany<kType, kWideTiles>(queue, wide, w, x, to);
    }
  }
  return MultiplyMany<kType, kManyTiles>(queue, grid, w, x, to);
}

// Each of one file; cudaErrorNotSupported where it has not the type.
cudaError_t MultiplyPlainBlocks(const Queue& queue, DType dtype, const PackedWeights& w,
                                const PackedInput& x, const InputRows& input,
                                const ProductOutput& to, const ExpertProducts* experts);
cudaError_t MultiplySuperBlocks(const Queue& queue, DType dtype, const PackedWeights& w,
                                const PackedInput& x, const InputRows& input,
                                const ProductOutput& to, const ExpertProducts* experts);
cudaError_t MultiplyOthers(const Queue& queue, DType dtype, const PackedWeights& w,
                           const PackedInput& x, const InputRows& input, const ProductOutput& to,
                           const ExpertProducts* experts);

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_MULTIPLY_TYPE_H_
