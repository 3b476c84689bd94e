// out = W x^T + bias of one type of packed weights, by the kernel that suits the number of tokens:
// all have the same bits. (Several .cu files share the types, to be compiled beside each other.)
#ifndef LM_ENGINE_BACKEND_CUDA_MULTIPLY_TYPE_H_
#define LM_ENGINE_BACKEND_CUDA_MULTIPLY_TYPE_H_

#include "engine/backend/cuda/multiply_few.cuh"
#include "engine/backend/cuda/multiply_many.cuh"

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

template <DType kType>
cudaError_t MultiplyOfExperts(const Queue& queue, const PackedWeights& w, const PackedInput& x,
                              const ProductOutput& to, const ExpertProducts& experts) {
  static_assert(kGroupSlots[0] == kTileTokens && kGroupSlots[1] == 4 * kTileTokens &&
                kGroupSlots[2] == kManyTiles * kTileTokens);
  if (experts.group_slots == kGroupSlots[0]) {
    return MultiplyFewOfExperts<kType, 1>(queue, w, x, to, experts);
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
                         const ProductOutput& to, const ExpertProducts* experts) {
  if (experts != nullptr) return MultiplyOfExperts<kType>(queue, w, x, to, *experts);
  const int64_t tiles = DivideUp(x.tokens, kTileTokens);
  if (tiles <= 1) return MultiplyFew<kType, 1>(queue, w, x, to);
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
                                const PackedInput& x, const ProductOutput& to,
                                const ExpertProducts* experts);
cudaError_t MultiplySuperBlocks(const Queue& queue, DType dtype, const PackedWeights& w,
                                const PackedInput& x, const ProductOutput& to,
                                const ExpertProducts* experts);
cudaError_t MultiplyOthers(const Queue& queue, DType dtype, const PackedWeights& w,
                           const PackedInput& x, const ProductOutput& to,
                           const ExpertProducts* experts);

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_MULTIPLY_TYPE_H_
