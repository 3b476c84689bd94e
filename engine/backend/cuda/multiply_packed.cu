#include "engine/backend/cuda/multiply_type.cuh"

namespace lm::cuda {
namespace {

bool IsAligned(const float* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

bool Overlap(const Matrix& a, const Matrix& b) {
  auto end = [](const Matrix& m) { return m.data + (m.rows - 1) * m.stride + m.cols; };
  return a.data < end(b) && b.data < end(a);
}

}  // namespace

bool PacksOwnInput(DType dtype, const InputRows& input, const Matrix& out,
                   const ExpertProducts* experts) {
  if (dtype == DType::kF16 || dtype == DType::kBF16 || Overlap(input.x, out)) return false;
  if ((experts == nullptr ? input.x.rows : experts->num_rows) > 1) return false;
  const int64_t bytes = DivideUp(input.cols, kUnitCols) * OwnUnitBytes(kMostInputNumbers);
  if (bytes > kMostOwnBytes) return false;
  // Four values are read at a time.
  if (!IsAligned(input.x.data) || input.x.stride % 4 != 0) return false;
  return input.kind != InputKind::kNormed ||
         (IsAligned(input.norm.weight) && input.norm.weights == input.cols);
}

cudaError_t MultiplyPacked(const Queue& queue, DType dtype, const PackedWeights& w,
                           const PackedInput& x, const InputRows& input, const float* bias,
                           bool adds, Matrix out, const ExpertProducts* experts) {
  const ProductOutput to = {out, bias, adds};
  cudaError_t error = cudaErrorNotSupported;
  for (auto multiply : {MultiplyPlainBlocks, MultiplySuperBlocks, MultiplyOthers}) {
    error = multiply(queue, dtype, w, x, input, to, experts);
    if (error != cudaErrorNotSupported) break;
  }
  return error;
}

}  // namespace lm::cuda
