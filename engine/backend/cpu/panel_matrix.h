// Weights as the CPU keeps them: sixteen rows side by side.
#ifndef LM_ENGINE_BACKEND_CPU_PANEL_MATRIX_H_
#define LM_ENGINE_BACKEND_CPU_PANEL_MATRIX_H_

#include <algorithm>
#include <deque>
#include <memory>

#include "engine/backend/backend.h"
#include "engine/backend/cpu/panel_format.h"
#include "engine/backend/cpu/scratch.h"
#include "engine/backend/cpu/weight_arena.h"
#include "engine/base/thread_pool.h"

namespace lm {

inline constexpr int kStripRows = 4 * kPanelRows;
inline constexpr int kPairRows = kPanelsAPair * kPanelRows;

class PanelMatrix;

// The matrices that are not whole yet, in the order in which they were loaded. One thread at a
// time.
class DeferredMatrices {
 public:
  void Add(PanelMatrix* matrix) { matrices_.push_back(matrix); }
  void Remove(PanelMatrix* matrix) {
    if (first() == matrix) return matrices_.pop_front();  // nearly always
    std::erase(matrices_, matrix);
  }
  PanelMatrix* first() const { return matrices_.empty() ? nullptr : matrices_.front(); }

 private:
  std::deque<PanelMatrix*> matrices_;
};

// Float weights: strips of 64 rows, [strip][k][64], in their own type. Block weights: panels of 16
// rows in pairs (panel_format.h), all pairs' codes, then all pairs' scales. Rows beyond rows() are
// zeros.
//
// A strip or a pair is a piece. Of a matrix whose rows last the first pieces may be in memory and
// the others be read, and laid out, by each product: from the page cache that takes some four times
// as long as to multiply by them as they lie here, but far less than memory that is touched for the
// first time, which they would lie in.
class PanelMatrix : public WeightMatrix {
 public:
  // The pool's threads read and pack a few rows at a time, so that what was read is still in their
  // caches. `scratch` holds what they read. REQUIRES: CheckLoadMatrix() passed.
  static absl::StatusOr<std::unique_ptr<PanelMatrix>> Pack(DType dtype, int64_t rows, int64_t cols,
                                                           RowReader read, ThreadPool* pool,
                                                           WeightArena* arena, Scratch* scratch);

  // Of rows that last: reads none yet. `deferred` has it until it is whole.
  static std::unique_ptr<PanelMatrix> Open(DType dtype, int64_t rows, int64_t cols,
                                           LastingRowReader lasting,
                                           std::shared_ptr<DeferredMatrices> deferred);

  // A matrix that Pack laid out. InvalidArgument for another number of bytes.
  static absl::StatusOr<std::unique_ptr<PanelMatrix>> Adopt(DType dtype, int64_t rows, int64_t cols,
                                                            Buffer packed);
  ~PanelMatrix() override;

  // What Pack allocates.
  static int64_t PackedBytes(DType dtype, int64_t rows, int64_t cols);

  size_t bytes() const override { return PackedBytes(dtype(), rows(), cols()); }
  // REQUIRES: is_whole().
  absl::Span<const char> packed() const override { return buffer_.chars(); }

  int64_t piece_rows() const { return format_ != nullptr ? kPairRows : kStripRows; }
  int64_t num_pieces() const { return (rows() + piece_rows() - 1) / piece_rows(); }
  bool has(int64_t piece) const { return piece < pieces_; }
  bool is_whole() const { return has(num_pieces() - 1); }

  // Where a piece is: a strip, or a pair's codes and scales.
  struct Piece {
    const uint8_t* codes;
    const uint8_t* scales;
  };
  // In memory, or else read into `scratch`, of piece_scratch_bytes(), and laid out there.
  absl::StatusOr<Piece> Get(int64_t piece, char* scratch) const;
  int64_t piece_scratch_bytes() const;  // 0: all are in memory

  // Lays out the next pieces in memory, about so many bytes.
  absl::Status PackMore(int64_t bytes, ThreadPool* pool, WeightArena* arena, Scratch* scratch);

  // REQUIRES: float weights; where they are read, the piece is in memory.
  int64_t num_strips() const { return (rows() + kStripRows - 1) / kStripRows; }
  // Strip i from step k on.
  const char* strip(int64_t i, int64_t k) const {
    return buffer_.chars().data() + RowBytes(dtype(), (i * cols() + k) * kStripRows);
  }

  // REQUIRES: block weights; likewise.
  const PanelFormat& format() const { return *format_; }
  int64_t num_pairs() const { return (rows() + kPairRows - 1) / kPairRows; }
  int64_t pair_bytes() const { return pair_code_bytes_ + pair_scale_bytes_; }
  int64_t pair_code_bytes() const { return pair_code_bytes_; }
  int64_t pair_scale_bytes() const { return pair_scale_bytes_; }
  // Where panel i's first block and group are.
  const uint8_t* codes(int64_t i) const {
    return static_cast<const uint8_t*>(buffer_.data()) + i / kPanelsAPair * pair_code_bytes_ +
           i % kPanelsAPair * format_->code_bytes;
  }
  const uint8_t* scales(int64_t i) const {
    return codes(num_pairs() * kPanelsAPair) + i / kPanelsAPair * pair_scale_bytes_ +
           i % kPanelsAPair * format_->group_scale_bytes;
  }

  // Row `row` as F32.
  absl::Status ReadRow(int64_t row, float* out) const;

 private:
  PanelMatrix(DType dtype, int64_t rows, int64_t cols);

  Piece InMemory(int64_t piece) const;
  int64_t piece_bytes() const { return PackedBytes(dtype(), piece_rows(), cols()); }
  int64_t RowsOf(int64_t piece) const {
    return std::min(piece_rows(), rows() - piece * piece_rows());
  }
  // Lays out the pieces [begin, end), each of which `read` reads.
  absl::Status PackPieces(int64_t begin, int64_t end, RowReader read, ThreadPool* pool,
                          Scratch* scratch);
  // Lays out a piece's first `count` rows. REQUIRES: zeros at `to` where a piece has more.
  void LayOut(int64_t count, const char* blocks, Piece to) const;

  Buffer buffer_;
  const PanelFormat* format_ = nullptr;
  int64_t pair_code_bytes_ = 0;
  int64_t pair_scale_bytes_ = 0;
  int64_t pieces_ = 0;        // in memory
  LastingRowReader lasting_;  // of the others
  std::shared_ptr<DeferredMatrices> deferred_;
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_PANEL_MATRIX_H_
