// Products with packed weights: which kernel makes a product, and which products pack their own
// input.
#include "engine/backend/cuda/multiply_type.cuh"

namespace lm::cuda {
namespace {

constexpr int64_t kMostActivatedCols = 4096;

bool Overlap(const Matrix& a, const Matrix& b) {
  auto end = [](const Matrix& m) { return m.data + (m.rows - 1) * m.stride + m.cols; };
  return a.data < end(b) && b.data < end(a);
}

}  // namespace

bool PacksOwnInput(DType dtype, const InputRows& input, const Matrix& out,
                   const ExpertProducts* experts) {
  if (Overlap(input.x, out)) return false;
  if ((experts == nullptr ? input.x.rows : experts->num_rows) > 1) return false;
  constexpr PackedFormat kQuantised = kPackedFormat<DType::kQ8_0>;
  const int64_t units = DivideUp(input.cols, kUnitCols);
  const bool is_16 = dtype == DType::kF16 || dtype == DType::kBF16;
  if (is_16 ? input.cols > kMostOwnCols16
            : units * OwnUnitBytes(kQuantised, kMostInputNumbers) > kMostOwnBytes) {
    return false;
  }
  // Long activated rows take all thread blocks longer than a kernel before them.
  const bool activated = input.kind == InputKind::kActivated || input.kind == InputKind::kGated;
  if (activated && experts == nullptr && input.cols > kMostActivatedCols) return false;
  return IsReadInQuads(input);
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
