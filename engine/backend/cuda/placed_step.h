// PlacedStep: the tables of a step (step_tables.h) in a device's memory, where kernels find them.
//
// A table stays at its address from step to step until one of them needs more room than ever
// before: so what is put into the queue for one step can be captured and put there again for the
// next. All lie in one piece of memory, which takes one upload, and one more for each rope but a
// small first one: most of their room is a prompt's.
#ifndef LM_ENGINE_BACKEND_CUDA_PLACED_STEP_H_
#define LM_ENGINE_BACKEND_CUDA_PLACED_STEP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/backend/cuda/cuda_device.h"
#include "engine/backend/cuda/kernels.h"
#include "engine/backend/step_tables.h"

namespace lm {

class PlacedStep {
 public:
  // Puts the step's tables in the place of those of the step before. `picked`: where each of the
  // tokens that that picks lies on the device, -1 where it does not; then any other one may stand
  // for it.
  absl::Status Place(CudaDevice* device, const StepTables& tables, const StepIndex& index,
                     absl::Span<const int32_t> picked);

  // Of the step that was placed last. REQUIRES: that returned OK.
  // ~i: what was picked in place i.
  const int32_t* tokens() const { return At<int32_t>(kTokens); }
  cuda::StepRows rows() const {
    return {At<cuda::Sequence>(kSequences), static_cast<int64_t>(sequences_.size()),
            At<int32_t>(kSequenceOfRow)};
  }
  // Of a class of the cache: the rows' slots, and the block tables.
  const int64_t* slots(int32_t cache_class) const {
    return At<int64_t>(kFirstClass + 2 * cache_class);
  }
  const int32_t* blocks(int32_t cache_class) const {
    return At<int32_t>(kFirstClass + 2 * cache_class + 1);
  }
  const int32_t* row_list(int32_t list) const { return At<int32_t>(first_list_ + list); }
  // Angles (T, dim); of table -1, none: without columns.
  cuda::Matrix rope(int32_t table) const {
    if (table < 0) return {};
    const auto rows = static_cast<int64_t>(sequence_of_row_.size());
    const int64_t dim = rope_dims_[table];
    return {At<float>(first_rope_ + table), rows, dim, dim};
  }

 private:
  // The parts of the piece, in order: these, two for each class, the row lists, the ropes.
  enum : int32_t { kTokens, kSequences, kSequenceOfRow, kFirstClass };

  template <typename T>
  T* At(int32_t part) const {
    return reinterpret_cast<T*>(static_cast<char*>(piece_) + begins_[part]);
  }

  CudaScratch memory_;
  void* piece_ = nullptr;
  std::vector<size_t> begins_;              // of the parts in the piece
  std::vector<size_t> rooms_, rope_rooms_;  // their bytes at most
  int32_t first_list_ = 0, first_rope_ = 0;
  std::vector<int64_t> rope_dims_;

  // On the host, to upload from.
  std::vector<int32_t> tokens_;
  std::vector<cuda::Sequence> sequences_;
  std::vector<int32_t> sequence_of_row_;
  std::vector<char> packed_;
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CUDA_PLACED_STEP_H_
