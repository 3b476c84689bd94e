#include "engine/backend/cpu/panel_matrix.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/backend/cpu/transpose.h"
#include "engine/backend/first_error.h"
#include "engine/base/float16.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// out[k][row] = blocks[row][k], a cache line of each row at a time: rows of powers of two share a
// few sets of the L1 cache, where no line stays.
template <typename T>
void PackFloats(const char* blocks, int64_t rows, int64_t cols, char* out) {
  constexpr int kSide = Lanes<T>::kCount;
  constexpr int64_t kLine = 64 / sizeof(T);
  const T* from = reinterpret_cast<const T*>(blocks);
  T* to = reinterpret_cast<T*>(out);
  const int64_t whole_rows = rows / kSide * kSide;
  for (int64_t begin = 0; begin < cols; begin += kLine) {
    const int64_t end = std::min(begin + kLine, cols);
    const int64_t whole = end / kSide * kSide;
    auto pack = [&](int64_t first_row, int64_t first_k) {
      for (int64_t row = first_row; row < rows; ++row) {
        for (int64_t k = first_k; k < end; ++k) to[k * kStripRows + row] = from[row * cols + k];
      }
    };
    for (int64_t row = 0; row < whole_rows; row += kSide) {
      for (int64_t k = begin; k < whole; k += kSide) {
        typename Lanes<T>::Vector square[kSide];
        for (int i = 0; i < kSide; ++i) square[i] = Lanes<T>::Load(from + (row + i) * cols + k);
        Transpose(square);
        for (int i = 0; i < kSide; ++i) {
          Lanes<T>::Store(square[i], to + (k + i) * kStripRows + row);
        }
      }
    }
    pack(0, std::max(begin, whole));
    if (whole_rows < rows) pack(whole_rows, begin);
  }
}

}  // namespace

int64_t PanelMatrix::PackedBytes(DType dtype, int64_t rows, int64_t cols) {
  if (!Traits(dtype).quantised) {
    return (rows + kStripRows - 1) / kStripRows * kStripRows * RowBytes(dtype, cols);
  }
  const PanelFormat& format = GetPanelFormat(dtype);
  return (rows + kPairRows - 1) / kPairRows *
         (PairCodeBytes(format, cols) + PairScaleBytes(format, cols));
}

PanelMatrix::PanelMatrix(DType dtype, int64_t rows, int64_t cols)
    : WeightMatrix(dtype, rows, cols) {
  if (!Traits(dtype).quantised) return;
  format_ = &GetPanelFormat(dtype);
  pair_code_bytes_ = PairCodeBytes(*format_, cols);
  pair_scale_bytes_ = PairScaleBytes(*format_, cols);
}

absl::StatusOr<std::unique_ptr<PanelMatrix>> PanelMatrix::Adopt(DType dtype, int64_t rows,
                                                                int64_t cols, Buffer packed) {
  const int64_t bytes = PackedBytes(dtype, rows, cols);
  if (packed.bytes() != static_cast<size_t>(bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("AdoptMatrix: a ", Traits(dtype).name, " (",
                                                   rows, ", ", cols, ") has ", bytes,
                                                   " bytes, got ", packed.bytes()));
  }
  std::unique_ptr<PanelMatrix> matrix(new PanelMatrix(dtype, rows, cols));
  matrix->buffer_ = std::move(packed);
  return matrix;
}

absl::StatusOr<std::unique_ptr<PanelMatrix>> PanelMatrix::Pack(DType dtype, int64_t rows,
                                                               int64_t cols, RowReader read,
                                                               ThreadPool* pool, WeightArena* arena,
                                                               Scratch* scratch) {
  std::unique_ptr<PanelMatrix> matrix(new PanelMatrix(dtype, rows, cols));
  const int64_t row_bytes = RowBytes(dtype, cols);
  const bool quantised = Traits(dtype).quantised;
  ASSIGN_OR_RETURN(matrix->buffer_, arena->Allocate(PackedBytes(dtype, rows, cols)));

  // Each worker has a buffer for what it reads, which stays from matrix to matrix: memory of its
  // own for each would be made page by page, anew.
  constexpr int64_t kItemsAThread = 4;
  const int64_t piece_rows = quantised ? kPairRows : kStripRows;
  const int64_t pieces = (rows + piece_rows - 1) / piece_rows;
  const int64_t items = std::min<int64_t>(pieces, kItemsAThread * pool->num_threads());
  const int64_t workers = std::min<int64_t>(items, pool->num_threads());
  const int64_t buffer_bytes = (piece_rows * row_bytes + 63) / 64 * 64;
  ASSIGN_OR_RETURN(char* const buffers, scratch->Get(workers * buffer_bytes));
  FirstError error;
  std::atomic<int64_t> next{0};
  pool->ParallelFor(workers, [&](int64_t worker) {
    char* const blocks = buffers + worker * buffer_bytes;
    for (int64_t item; (item = next.fetch_add(1, std::memory_order_relaxed)) < items;) {
      const int64_t begin = pieces * item / items * piece_rows;
      const int64_t end = std::min(pieces * (item + 1) / items * piece_rows, rows);
      for (int64_t first = begin; first < end && !error.Precedes(first); first += piece_rows) {
        const int64_t count = std::min(piece_rows, end - first);
        if (absl::Status status = read(first, count, blocks); !status.ok()) {
          error.Add(first, std::move(status));
          break;
        }
        matrix->PackRows(first, count, blocks);
      }
    }
  });
  RETURN_IF_ERROR(error.status());
  return matrix;
}

void PanelMatrix::PackRows(int64_t first, int64_t count, const char* blocks) {
  const int64_t row_bytes = RowBytes(dtype(), cols());
  if (format_ != nullptr) {
    for (int64_t row = 0; row < count; row += kPanelRows) {
      const int64_t panel = (first + row) / kPanelRows;
      PackPanel(*format_, blocks + row * row_bytes, std::min<int64_t>(kPanelRows, count - row),
                cols(), const_cast<uint8_t*>(codes(panel)), const_cast<uint8_t*>(scales(panel)));
    }
    return;
  }
  char* to = const_cast<char*>(strip(first / kStripRows, 0));
  if (dtype() == DType::kF32) {
    PackFloats<uint32_t>(blocks, count, cols(), to);
  } else {
    PackFloats<uint16_t>(blocks, count, cols(), to);
  }
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
