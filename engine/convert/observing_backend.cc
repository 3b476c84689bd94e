#include "engine/convert/observing_backend.h"

#include <utility>

#include "engine/base/status_macros.h"

namespace lm {

void ObservingBackend::Note(const std::string& tensor) {
  absl::MutexLock lock(&mutex_);
  if (loading_) noted_.insert(tensor);
}

absl::StatusOr<std::unique_ptr<WeightMatrix>> ObservingBackend::LoadMatrix(DType dtype,
                                                                           int64_t rows,
                                                                           int64_t cols,
                                                                           RowReader read) {
  {
    absl::MutexLock lock(&mutex_);
    loading_ = true;
    noted_.clear();
  }
  absl::StatusOr<std::unique_ptr<WeightMatrix>> matrix =
      inner_->LoadMatrix(dtype, rows, cols, read);
  absl::MutexLock lock(&mutex_);
  loading_ = false;
  if (matrix.ok()) {
    sums_[matrix->get()] = {.tensors = std::move(noted_), .squares = std::vector<double>(cols)};
  }
  return matrix;
}

absl::Status ObservingBackend::MatMul(const WeightMatrix& w, Tensor x, Tensor bias, Tensor out) {
  const auto found = sums_.find(&w);
  if (found != sums_.end()) {
    Sums& sums = found->second;
    for (int64_t row = 0; row < x.rows; ++row) {
      const float* values = x.row<float>(row);
      for (int64_t i = 0; i < w.cols(); ++i) sums.squares[i] += double{values[i]} * values[i];
    }
    sums.rows += x.rows;
  }
  return inner_->MatMul(w, x, bias, out);
}

Importance ObservingBackend::Observed() const {
  HashMap<std::string, Sums> of_tensor;  // whose parts may be several matrices: experts
  for (const auto& [matrix, sums] : sums_) {
    for (const std::string& tensor : sums.tensors) {
      Sums& all = of_tensor[tensor];
      all.squares.resize(sums.squares.size());
      for (size_t i = 0; i < sums.squares.size(); ++i) all.squares[i] += sums.squares[i];
      all.rows += sums.rows;
    }
  }
  Importance importance;
  for (const auto& [tensor, sums] : of_tensor) {
    if (sums.rows == 0) continue;
    std::vector<float>& means = importance[tensor];
    for (const double square : sums.squares) {
      means.push_back(static_cast<float>(square / static_cast<double>(sums.rows)));
    }
  }
  return importance;
}

}  // namespace lm
