// Tensor is a view of a row-major matrix in host or device memory; it owns nothing.
#ifndef LM_ENGINE_TENSOR_TENSOR_H_
#define LM_ENGINE_TENSOR_TENSOR_H_

#include <cstdint>

#include "engine/tensor/dtype.h"

namespace lm {

// (rows, cols), each row RowBytes(dtype, cols) bytes, rows `row_bytes` apart. A vector is one row.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_bytes = 0;

  Tensor() = default;
  Tensor(void* data, DType dtype, int64_t rows, int64_t cols)
      : data(data), dtype(dtype), rows(rows), cols(cols), row_bytes(RowBytes(dtype, cols)) {}

  bool empty() const { return data == nullptr; }

  // REQUIRES: 0 <= i < rows, and T is the C++ type of dtype.
  template <typename T>
  T* row(int64_t i) const {
    return reinterpret_cast<T*>(static_cast<char*>(data) + i * row_bytes);
  }

  // Rows [begin, begin + count).
  Tensor Rows(int64_t begin, int64_t count) const {
    Tensor view = *this;
    view.data = row<char>(begin);
    view.rows = count;
    return view;
  }

  // Columns [begin, begin + count) of every row.
  // REQUIRES: both are multiples of the block size.
  Tensor Cols(int64_t begin, int64_t count) const {
    Tensor view = *this;
    view.data = static_cast<char*>(data) + RowBytes(dtype, begin);
    view.cols = count;
    return view;
  }
};

}  // namespace lm

#endif  // LM_ENGINE_TENSOR_TENSOR_H_
