// out = W x^T + bias of one type of packed weights, by the kernel that suits the number of tokens:
// all have the same bits. (Several .cu files share the types, to be compiled beside each other.)
#ifndef LM_ENGINE_BACKEND_CUDA_MULTIPLY_TYPE_H_
#define LM_ENGINE_BACKEND_CUDA_MULTIPLY_TYPE_H_

#include "engine/backend/cuda/multiply_few.cuh"
#include "engine/backend/cuda/multiply_many.cuh"
#include "engine/backend/cuda/multiply_streamed.cuh"

namespace lm::cuda {

// Thread blocks that MultiplyManyKernel needs before it keeps a GPU busy.
inline constexpr int64_t kManyBlocks = 64;

template <DType kType, int kTiles>
cudaError_t MultiplyFew(const Queue& queue, const PackedWeights& w, const PackedInput& x,
                        const ProductOutput& to) {
  const int64_t tiles = DivideUp(x.tokens, kTileTokens);
  return Launch(queue, MultiplyFewKernel<kType, kTiles>,
                Grid(w.shape.panels, DivideUp(tiles, kTiles)), kFewThreads, w, x, to);
}

template <DType kType, int kTiles>
cudaError_t MultiplyFewOfExperts(const Queue& queue, const PackedWeights& w, const PackedInput& x,
                                 const ProductOutput& to, const ExpertProducts& experts) {
  return Launch(queue, MultiplyFewOfExpertsKernel<kType, kTiles>,
                Grid(w.shape.panels, experts.num_groups), kFewThreads, w, x, to, experts);
}

// Up to a tile, of all or of each group of slots.
template <DType kType, bool kOwnInput>
cudaError_t MultiplyTile(const Queue& queue, const PackedWeights& w, const PackedInput& x,
                         const InputRows& input, const ProductOutput& to,
                         const ExpertProducts* experts) {
  const int64_t groups = experts == nullptr ? 1 : experts->num_groups;
  const int64_t per_block =
      std::min(DivideUp(w.shape.panels * groups, kStreamBlocks), w.shape.panels);
  const dim3 grid = Grid(DivideUp(w.shape.panels, per_block), groups);
  const int64_t input_bytes = kOwnInput ? x.units * OwnUnitBytes(kInputNumbers<kType>) : 0;
  const int shared_bytes = StreamStage<kType, kOwnInput>::kOwn + static_cast<int>(input_bytes);
  if (experts == nullptr) {
    return LaunchShared(queue, MultiplyStreamedKernel<kType, kOwnInput>, grid, kFewThreads,
                        shared_bytes, w, x, input, to, static_cast<int>(per_block));
  }
  return LaunchShared(queue, MultiplyStreamedOfExpertsKernel<kType, kOwnInput>, grid, kFewThreads,
                      shared_bytes, w, x, input, to, *experts, static_cast<int>(per_block));
}

template <DType kType>
cudaError_t MultiplyTile(const Queue& queue, const PackedWeights& w, const PackedInput& x,
                         const InputRows& input, const ProductOutput& to,
                         const ExpertProducts* experts) {
  if constexpr (kPackedFormat<kType>.quantised()) {
    return x.data == nullptr ? MultiplyTile<kType, true>(queue, w, x, input, to, experts)
                             : MultiplyTile<kType, false>(queue, w, x, input, to, experts);
  } else {
    return experts == nullptr ? MultiplyFew<kType, 1>(queue, w, x, to)
                              : MultiplyFewOfExperts<kType, 1>(queue, w, x, to, *experts);
  }
}

template <DType kType>
cudaError_t MultiplyOfExperts(const Queue& queue, const PackedWeights& w, const PackedInput& x,
                              const InputRows& input, const ProductOutput& to,
                              const ExpertProducts& experts) {
  static_assert(kGroupSlots[0] == kTileTokens && kGroupSlots[1] == 4 * kTileTokens &&
                kGroupSlots[2] == kManyTiles * kTileTokens);
  if (experts.group_slots == kGroupSlots[0]) {
    return MultiplyTile<kType>(queue, w, x, input, to, &experts);
  }
  if (experts.group_slots == kGroupSlots[1]) {
    return MultiplyFewOfExperts<kType, 4>(queue, w, x, to, experts);
  }
  return LaunchShared(queue, MultiplyManyOfExpertsKernel<kType>,
                      Grid(DivideUp(w.shape.panels, kManyPanels), experts.num_groups), kManyThreads,
                      ManyStage<kType>::kAllBytes, w, x, to, experts);
}

template <DType kType>
cudaError_t MultiplyType(const Queue& queue, const PackedWeights& w, const PackedInput& x,
                         const InputRows& input, const ProductOutput& to,
                         const ExpertProducts* experts) {
  if (experts != nullptr) return MultiplyOfExperts<kType>(queue, w, x, input, to, *experts);
  const int64_t tiles = DivideUp(x.tokens, kTileTokens);
  if (tiles <= 1) return MultiplyTile<kType>(queue, w, x, input, to, nullptr);
  if (tiles <= 2) return MultiplyFew<kType, 2>(queue, w, x, to);
  if (tiles <= 4) return MultiplyFew<kType, 4>(queue, w, x, to);
  const dim3 grid = Grid(DivideUp(w.shape.panels, kManyPanels), DivideUp(tiles, kManyTiles));
  if (int64_t{grid.x} * grid.y < kManyBlocks) {
    return MultiplyFew<kType, 8>(queue, w, x, to);
  }
  return LaunchShared(queue, MultiplyManyKernel<kType>, grid, kManyThreads,
                      ManyStage<kType>::kAllBytes, w, x, to);
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
