// A matrix of weights whose rows the members of a TensorParallelBackend share, and groups of such.
#ifndef LM_ENGINE_BACKEND_TENSOR_PARALLEL_SPLIT_MATRIX_H_
#define LM_ENGINE_BACKEND_TENSOR_PARALLEL_SPLIT_MATRIX_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/tensor_parallel/member_memory.h"

namespace lm {

// Where each member's rows begin, and where the last one's end; empty: each has all of them.
using RowSplit = std::vector<int64_t>;

class SplitMatrix final : public WeightMatrix {
 public:
  SplitMatrix(DType dtype, int64_t rows, int64_t cols, RowSplit split,
              std::vector<std::unique_ptr<WeightMatrix>> parts,
              std::shared_ptr<const MemberMemory> memory)
      : WeightMatrix(dtype, rows, cols),
        split_(std::move(split)),
        parts_(std::move(parts)),
        memory_(std::move(memory)) {}

  size_t bytes() const override {
    size_t bytes = 0;
    for (const auto& part : parts_) {
      bytes += part->bytes();
      if (!is_split()) break;
    }
    return bytes;
  }

  void set_row_scales(Buffer scales) override {
    WeightMatrix::set_row_scales(std::move(scales));
    for (size_t i = 0; i < parts_.size(); ++i) {
      Tensor own = Own(row_scales(), i);
      own.data = memory_->At(own.data, i);
      parts_[i]->set_row_scales(
          Buffer(own.data, own.cols * sizeof(float), [](void*, size_t) {}));  // it is not theirs
    }
  }

  bool is_split() const { return !split_.empty(); }
  const RowSplit& split() const { return split_; }
  WeightMatrix& part(size_t member) const { return *parts_[member]; }

  // The columns of a product's result, or of its bias, that a member makes.
  Tensor Own(Tensor of_all, size_t member) const {
    if (!is_split() || of_all.empty()) return of_all;
    return of_all.Cols(split_[member], split_[member + 1] - split_[member]);
  }

 private:
  const RowSplit split_;
  const std::vector<std::unique_ptr<WeightMatrix>> parts_;
  const std::shared_ptr<const MemberMemory> memory_;
};

inline const SplitMatrix& ToSplit(const WeightMatrix& w) {
  return static_cast<const SplitMatrix&>(w);
}

class SplitGroup final : public MatrixGroup {
 public:
  SplitGroup(std::vector<GroupedMatrix> members, std::vector<std::unique_ptr<MatrixGroup>> parts)
      : MatrixGroup(std::move(members)), parts_(std::move(parts)) {}

  const SplitMatrix& first() const { return ToSplit(*members()[0].w); }
  const MatrixGroup* part(size_t member) const { return parts_[member].get(); }

 private:
  const std::vector<std::unique_ptr<MatrixGroup>> parts_;
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_TENSOR_PARALLEL_SPLIT_MATRIX_H_
