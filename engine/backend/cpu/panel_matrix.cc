#include "engine/backend/cpu/panel_matrix.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/backend/cpu/transpose.h"
#include "engine/base/first_error.h"
#include "engine/base/float16.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/block_format.h"

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
  matrix->pieces_ = matrix->num_pieces();
  return matrix;
}

PanelMatrix::~PanelMatrix() {
  if (deferred_ != nullptr) deferred_->Remove(this);
}

absl::StatusOr<std::unique_ptr<PanelMatrix>> PanelMatrix::Pack(DType dtype, int64_t rows,
                                                               int64_t cols, RowReader read,
                                                               ThreadPool* pool, WeightArena* arena,
                                                               Scratch* scratch) {
  std::unique_ptr<PanelMatrix> matrix(new PanelMatrix(dtype, rows, cols));
  ASSIGN_OR_RETURN(matrix->buffer_, arena->Allocate(PackedBytes(dtype, rows, cols)));
  const int64_t pieces = matrix->num_pieces();
  RETURN_IF_ERROR(matrix->PackPieces(0, pieces, read, pool, scratch));
  matrix->pieces_ = pieces;
  return matrix;
}

std::unique_ptr<PanelMatrix> PanelMatrix::Open(DType dtype, int64_t rows, int64_t cols,
                                               LastingRowReader lasting,
                                               std::shared_ptr<DeferredMatrices> deferred) {
  std::unique_ptr<PanelMatrix> matrix(new PanelMatrix(dtype, rows, cols));
  matrix->lasting_ = std::move(lasting);
  deferred->Add(matrix.get());
  matrix->deferred_ = std::move(deferred);
  return matrix;
}

absl::Status PanelMatrix::PackMore(int64_t bytes, ThreadPool* pool, WeightArena* arena,
                                   Scratch* scratch) {
  assert(!is_whole());
  if (buffer_.data() == nullptr) {
    ASSIGN_OR_RETURN(buffer_, arena->Allocate(PackedBytes(dtype(), rows(), cols())));
  }
  const int64_t count = std::max<int64_t>(bytes / piece_bytes(), pool->num_threads());
  const int64_t end = std::min(pieces_ + count, num_pieces());
  RETURN_IF_ERROR(PackPieces(pieces_, end, lasting_, pool, scratch));
  pieces_ = end;
  if (!is_whole()) return absl::OkStatus();
  std::exchange(deferred_, nullptr)->Remove(this);
  lasting_ = nullptr;
  return absl::OkStatus();
}

absl::Status PanelMatrix::PackPieces(int64_t begin, int64_t end, RowReader read, ThreadPool* pool,
                                     Scratch* scratch) {
  // Each worker has a buffer for what it reads, which stays from matrix to matrix: memory of its
  // own for each would be made page by page, anew.
  constexpr int64_t kItemsAThread = 4;
  const int64_t pieces = end - begin;
  const int64_t items = std::min<int64_t>(pieces, kItemsAThread * pool->num_threads());
  const int64_t workers = std::min<int64_t>(items, pool->num_threads());
  const int64_t buffer_bytes = (piece_rows() * RowBytes(dtype(), cols()) + 63) / 64 * 64;
  ASSIGN_OR_RETURN(char* const buffers, scratch->Get(workers * buffer_bytes));
  FirstError error;
  std::atomic<int64_t> next{0};
  pool->ParallelFor(workers, [&](int64_t worker) {
    char* const blocks = buffers + worker * buffer_bytes;
    for (int64_t item; (item = next.fetch_add(1, std::memory_order_relaxed)) < items;) {
      const int64_t last = begin + pieces * (item + 1) / items;
      for (int64_t piece = begin + pieces * item / items; piece < last; ++piece) {
        const int64_t first = piece * piece_rows();
        if (error.Precedes(first)) break;
        if (absl::Status status = read(first, RowsOf(piece), blocks); !status.ok()) {
          error.Add(first, std::move(status));
          break;
        }
        LayOut(RowsOf(piece), blocks, InMemory(piece));
      }
    }
  });
  return error.status();
}

PanelMatrix::Piece PanelMatrix::InMemory(int64_t piece) const {
  if (format_ != nullptr) return {codes(piece * kPanelsAPair), scales(piece * kPanelsAPair)};
  return {reinterpret_cast<const uint8_t*>(strip(piece, 0)), nullptr};
}

int64_t PanelMatrix::piece_scratch_bytes() const {
  return is_whole() ? 0 : piece_bytes() + piece_rows() * RowBytes(dtype(), cols());
}

absl::StatusOr<PanelMatrix::Piece> PanelMatrix::Get(int64_t piece, char* scratch) const {
  if (has(piece)) return InMemory(piece);
  char* const blocks = scratch + piece_bytes();
  RETURN_IF_ERROR(lasting_(piece * piece_rows(), RowsOf(piece), blocks));
  if (RowsOf(piece) < piece_rows()) std::memset(scratch, 0, piece_bytes());
  const auto* const begin = reinterpret_cast<const uint8_t*>(scratch);
  const Piece laid_out = {begin, begin + pair_code_bytes_};
  LayOut(RowsOf(piece), blocks, laid_out);
  return laid_out;
}

void PanelMatrix::LayOut(int64_t count, const char* blocks, Piece to) const {
  auto* const codes = const_cast<uint8_t*>(to.codes);
  auto* const scales = const_cast<uint8_t*>(to.scales);
  if (format_ != nullptr) {
    const int64_t row_bytes = RowBytes(dtype(), cols());
    for (int64_t row = 0; row < count; row += kPanelRows) {
      const int64_t panel = row / kPanelRows;
      PackPanel(*format_, blocks + row * row_bytes, std::min<int64_t>(kPanelRows, count - row),
                cols(), codes + panel * format_->code_bytes,
                scales + panel * format_->group_scale_bytes);
    }
  } else if (dtype() == DType::kF32) {
    PackFloats<uint32_t>(blocks, count, cols(), reinterpret_cast<char*>(codes));
  } else {
    PackFloats<uint16_t>(blocks, count, cols(), reinterpret_cast<char*>(codes));
  }
}

absl::Status PanelMatrix::ReadRow(int64_t row, float* out) const {
  if (!has(row / piece_rows())) {
    std::vector<char> blocks(RowBytes(dtype(), cols()));
    RETURN_IF_ERROR(lasting_(row, 1, blocks.data()));
    DequantizeRow(dtype(), blocks.data(), cols(), out);
    return absl::OkStatus();
  }
  if (format_ != nullptr) {
    int64_t panel = row / kPanelRows;
    int lane = static_cast<int>(row % kPanelRows);
    ReadPanelRow(*format_, codes(panel), scales(panel), lane, cols(), out);
    return absl::OkStatus();
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
  return absl::OkStatus();
}

}  // namespace lm
