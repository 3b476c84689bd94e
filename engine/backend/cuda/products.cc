// Matrices, and products with them.
#include <utility>

#include "engine/backend/check_arguments.h"
#include "engine/backend/cuda/cuda_ops.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

cuda::InputKind ToInputKind(ProductInput::Kind kind) {
  switch (kind) {
    case ProductInput::Kind::kNormed:
      return cuda::InputKind::kNormed;
    case ProductInput::Kind::kActivated:
      return cuda::InputKind::kActivated;
    case ProductInput::Kind::kGated:
      return cuda::InputKind::kGated;
    case ProductInput::Kind::kPlain:
      break;
  }
  return cuda::InputKind::kPlain;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightMatrix>> CudaBackend::LoadMatrix(DType dtype, int64_t rows,
                                                                      int64_t cols,
                                                                      RowReader read) {
  RETURN_IF_ERROR(CheckLoadMatrix(dtype, rows, cols));
  const cuda::PackedShape shape = cuda::ShapeOfPacked(dtype, rows, cols);
  ASSIGN_OR_RETURN(Buffer memory, device_->Allocate(shape.bytes));
  auto matrix = std::make_unique<CudaMatrix>(dtype, rows, cols, shape, std::move(memory));
  RETURN_IF_ERROR(weight_upload_.Bring(
      dtype, rows, cols, read, [&](const void* raw, int64_t first, int64_t count) {
        if (dtype == DType::kF32) {  // not packed
          const int64_t row_bytes = RowBytes(dtype, cols);
          return device_->Copy(raw, matrix->data() + first * row_bytes, count * row_bytes);
        }
        return device_->Check(
            cuda::PackWeights(device_->queue(), dtype, matrix->weights(), raw, first, count),
            "LoadMatrix");
      }));
  return matrix;
}

absl::Status CudaBackend::Embed(const WeightMatrix& w, float scale, Tensor out) {
  RETURN_IF_ERROR(CheckEmbed(step_index(), w, out));
  RETURN_IF_ERROR(device_->Begin());
  if (out.rows == 0) return absl::OkStatus();
  const auto& matrix = static_cast<const CudaMatrix&>(w);
  return device_->Check(cuda::Embed(device_->queue(), w.dtype(), matrix.weights(), placed_.tokens(),
                                    static_cast<const cuda::PickedToken*>(picked_.memory.data()),
                                    scale, ToMatrix(out)),
                        "Embed");
}

absl::Status CudaBackend::MatMul(const WeightMatrix& w, Tensor x, Tensor bias, Tensor out) {
  RETURN_IF_ERROR(CheckMatMul(w, x, bias, out));
  return Multiply(w, ProductInput::Plain(x), bias, ProductResult::kReplaces, out);
}

absl::Status CudaBackend::Project(const WeightMatrix& w, const ProductInput& input, Tensor bias,
                                  ProductResult result, Tensor out) {
  if (w.dtype() == DType::kF32) return Backend::Project(w, input, bias, result, out);
  RETURN_IF_ERROR(CheckProject(w, input, bias, out));
  return Multiply(w, input, bias, result, out);
}

cuda::InputRows CudaBackend::ToInputRows(const ProductInput& input) {
  cuda::InputRows rows = {.kind = ToInputKind(input.kind),
                          .x = ToMatrix(input.x),
                          .cols = input.cols(),
                          .norm = {},
                          .activation = input.activation,
                          .places = nullptr,
                          .num_places = 0,
                          .cols_per_block = 0};
  if (input.kind == ProductInput::Kind::kNormed) rows.norm = ToNormRow(input.norm);
  return rows;
}

absl::Status CudaBackend::Multiply(const WeightMatrix& w, const ProductInput& input, Tensor bias,
                                   ProductResult result, Tensor out) {
  RETURN_IF_ERROR(device_->Begin());
  if (input.rows() == 0) return absl::OkStatus();
  const cuda::PackedWeights weights = static_cast<const CudaMatrix&>(w).weights();
  const float* bias_or_null = bias.empty() ? nullptr : bias.row<float>(0);
  if (w.dtype() == DType::kF32) {
    return device_->Check(
        cuda::MultiplyFloat(device_->queue(), weights, ToMatrix(input.x), bias_or_null,
                            /*adds=*/false, ToMatrix(out)),
        "MatMul");
  }
  return MultiplyPacked(w.dtype(), weights, ToInputRows(input), bias_or_null,
                        result == ProductResult::kIsAdded, ToMatrix(out), /*experts=*/nullptr,
                        "MatMul");
}

absl::Status CudaBackend::MultiplyPacked(DType dtype, const cuda::PackedWeights& w,
                                         const cuda::InputRows& input, const float* bias, bool adds,
                                         cuda::Matrix out, const cuda::ExpertProducts* experts,
                                         const char* op) {
  const cuda::Queue& queue = device_->queue();
  cuda::PackedInput packed = {nullptr, nullptr, input.x.rows, w.shape.units};
  if (!cuda::PacksOwnInput(dtype, input, out, experts)) {
    const int64_t places = input.places == nullptr ? input.x.rows : input.num_places;
    ASSIGN_OR_RETURN(
        void* scratch,
        input_scratch_.Reserve(device_.get(), cuda::PackedInputBytes(dtype, places, input.cols)));
    RETURN_IF_ERROR(device_->Check(cuda::PackInput(queue, dtype, input, scratch, &packed), op));
  }
  return device_->Check(
      cuda::MultiplyPacked(queue, dtype, w, packed, input, bias, adds, out, experts), op);
}

}  // namespace lm
