#include "engine/backend/cpu/panel_matrix.h"

#include <algorithm>

#include "engine/base/float16.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// out[k][row] = blocks[row][k], in squares that stay in the L1 cache.
template <typename T>
void PackFloats(const char* blocks, int64_t rows, int64_t cols, char* out) {
  constexpr int64_t kSquare = 16;
  const T* from = reinterpret_cast<const T*>(blocks);
  T* to = reinterpret_cast<T*>(out);
  for (int64_t begin = 0; begin < cols; begin += kSquare) {
    int64_t end = std::min(begin + kSquare, cols);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t k = begin; k < end; ++k) to[k * kStripRows + row] = from[row * cols + k];
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<PanelMatrix>> PanelMatrix::Pack(DType dtype, int64_t rows,
                                                               int64_t cols, const Buffer& blocks,
                                                               ThreadPool* pool) {
  std::unique_ptr<PanelMatrix> matrix(new PanelMatrix(dtype, rows, cols));
  int64_t row_bytes = RowBytes(dtype, cols);
  if (!Traits(dtype).quantised) {
    int64_t strips = matrix->num_strips();
    ASSIGN_OR_RETURN(matrix->buffer_, Buffer::AllocateHost(strips * kStripRows * row_bytes));
    pool->ParallelFor(strips, [&](int64_t strip) {
      int64_t first = strip * kStripRows;
      int64_t count = std::min<int64_t>(kStripRows, rows - first);
      const char* from = blocks.chars().data() + first * row_bytes;
      char* to = const_cast<char*>(matrix->strip(strip, 0));
      if (dtype == DType::kF32) {
        PackFloats<float>(from, count, cols, to);
      } else {
        PackFloats<uint16_t>(from, count, cols, to);
      }
    });
    return matrix;
  }
  matrix->format_ = &GetPanelFormat(dtype);
  matrix->pair_code_bytes_ = PairCodeBytes(*matrix->format_, cols);
  matrix->pair_scale_bytes_ = PairScaleBytes(*matrix->format_, cols);
  ASSIGN_OR_RETURN(matrix->buffer_,
                   Buffer::AllocateHost(matrix->num_pairs() * matrix->pair_bytes()));
  pool->ParallelFor((rows + kPanelRows - 1) / kPanelRows, [&](int64_t panel) {
    int64_t first = panel * kPanelRows;
    PackPanel(*matrix->format_, blocks.chars().data() + first * row_bytes,
              std::min<int64_t>(kPanelRows, rows - first), cols,
              const_cast<uint8_t*>(matrix->codes(panel)),
              const_cast<uint8_t*>(matrix->scales(panel)));
  });
  return matrix;
}

void PanelMatrix::ReadRow(int64_t row, float* out) const {
  if (format_ != nullptr) {
    int64_t panel = row / kPanelRows;
    int lane = static_cast<int>(row % kPanelRows);
    ReadPanelRow(*format_, codes(panel), scales(panel), lane, cols(), out);
    return;
  }
  const char* data = strip(row / kStripRows, 0);
  const float* floats = reinterpret_cast<const float*>(data) + row % kStripRows;
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(data) + row % kStripRows;
  for (int64_t k = 0; k < cols(); ++k) {
    switch (dtype()) {
      case DType::kF32:
        out[k] = floats[k * kStripRows];
        break;
      case DType::kF16:
        out[k] = HalfToFloat(halves[k * kStripRows]);
        break;
      default:
        out[k] = Bf16ToFloat(halves[k * kStripRows]);
    }
  }
}

}  // namespace lm
