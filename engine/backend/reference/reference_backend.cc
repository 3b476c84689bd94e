#include "engine/backend/reference/reference_backend.h"

#include <cmath>
#include <cstring>

#include "engine/backend/check_arguments.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/block_format.h"

namespace lm {
namespace {

float Activate(Activation activation, float x) {
  float z = x;
  if (activation == Activation::kGeluTanh) {
    constexpr float kTwiceRootOf2OverPi = 1.5957691216057308f;
    z = kTwiceRootOf2OverPi * (x + 0.044715f * x * x * x);
  }
  return (activation == Activation::kSigmoid ? 1.0f : x) / (1.0f + std::exp(-z));
}

}  // namespace

std::unique_ptr<Backend> CreateReferenceBackend() { return std::make_unique<ReferenceBackend>(); }

absl::StatusOr<Buffer> ReferenceBackend::Allocate(size_t bytes) {
  return Buffer::AllocateHost(bytes);
}

absl::Status ReferenceBackend::Upload(const void* from, void* to, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::Status ReferenceBackend::Download(const void* from, void* to, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WeightMatrix>> ReferenceBackend::LoadMatrix(DType dtype,
                                                                           int64_t rows,
                                                                           int64_t cols,
                                                                           RowReader read) {
  RETURN_IF_ERROR(CheckLoadMatrix(dtype, rows, cols));
  ASSIGN_OR_RETURN(Buffer blocks, Buffer::AllocateHost(rows * RowBytes(dtype, cols)));
  RETURN_IF_ERROR(read(0, rows, blocks.chars().data()));
  return std::make_unique<ReferenceMatrix>(dtype, rows, cols, std::move(blocks));
}

absl::Status ReferenceBackend::Copy(const void* from, void* to, size_t bytes) {
  return Upload(from, to, bytes);
}

absl::Status ReferenceBackend::Zero(void* data, size_t bytes) {
  if (bytes > 0) std::memset(data, 0, bytes);
  return absl::OkStatus();
}

absl::Status ReferenceBackend::Embed(const WeightMatrix& w, float scale, Tensor out) {
  RETURN_IF_ERROR(CheckEmbed(step_index(), w, out));
  const auto& matrix = static_cast<const ReferenceMatrix&>(w);
  for (int64_t t = 0; t < out.rows; ++t) {
    float* row = out.row<float>(t);
    DequantizeRow(w.dtype(), matrix.row(step().tokens[t]), w.cols(), row);
    for (int64_t i = 0; i < out.cols; ++i) row[i] *= scale;
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::RmsNorm(Tensor x, Tensor weight, float eps, Tensor out) {
  RETURN_IF_ERROR(CheckRmsNorm(x, weight, out));
  const float* gain = weight.row<float>(0);
  const int64_t n = weight.cols;
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t group = 0; group < x.cols; group += n) {
      const float* in = x.row<float>(t) + group;
      float* result = out.row<float>(t) + group;
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += double{in[i]} * in[i];
      float scale = 1.0f / std::sqrt(static_cast<float>(sum / n) + eps);
      for (int64_t i = 0; i < n; ++i) result[i] = in[i] * scale * gain[i];
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::GatedActivation(Activation activation, Tensor gate, Tensor up,
                                               Tensor out) {
  RETURN_IF_ERROR(CheckSameShape("GatedActivation", gate, up));
  RETURN_IF_ERROR(CheckSameShape("GatedActivation", gate, out));
  for (int64_t t = 0; t < gate.rows; ++t) {
    for (int64_t i = 0; i < gate.cols; ++i) {
      out.row<float>(t)[i] = Activate(activation, gate.row<float>(t)[i]) * up.row<float>(t)[i];
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::Add(Tensor x, Tensor y) {
  RETURN_IF_ERROR(CheckSameShape("Add", x, y));
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t i = 0; i < x.cols; ++i) x.row<float>(t)[i] += y.row<float>(t)[i];
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::GatherRows(Tensor x, int32_t list, Tensor out) {
  RETURN_IF_ERROR(CheckGatherRows(step_index(), x, list, out));
  const std::vector<int32_t>& rows = step().row_lists[list];
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(out.row<float>(i), x.row<float>(rows[i]), x.cols * sizeof(float));
  }
  return absl::OkStatus();
}

}  // namespace lm
