// Weights as the CPU keeps them: sixteen rows side by side.
#ifndef LM_ENGINE_BACKEND_CPU_PANEL_MATRIX_H_
#define LM_ENGINE_BACKEND_CPU_PANEL_MATRIX_H_

#include <memory>

#include "engine/backend/backend.h"
#include "engine/backend/cpu/panel_format.h"
#include "engine/backend/cpu/scratch.h"
#include "engine/backend/cpu/weight_arena.h"
#include "engine/base/thread_pool.h"

namespace lm {

inline constexpr int kStripRows = 4 * kPanelRows;
inline constexpr int kPairRows = kPanelsAPair * kPanelRows;

// Float weights: strips of 64 rows, [strip][k][64], in their own type. Block weights: panels of 16
// rows in pairs (panel_format.h), all pairs' codes, then all pairs' scales. Rows beyond rows() are
// zeros.
class PanelMatrix : public WeightMatrix {
 public:
  // The pool's threads read and pack a few rows at a time, so that what was read is still in their
  // caches. `scratch` holds what they read. REQUIRES: CheckLoadMatrix() passed.
  static absl::StatusOr<std::unique_ptr<PanelMatrix>> Pack(DType dtype, int64_t rows, int64_t cols,
                                                           RowReader read, ThreadPool* pool,
                                                           WeightArena* arena, Scratch* scratch);

  // A matrix that Pack laid out. InvalidArgument for another number of bytes.
  static absl::StatusOr<std::unique_ptr<PanelMatrix>> Adopt(DType dtype, int64_t rows, int64_t cols,
                                                            Buffer packed);

  // What Pack allocates.
  static int64_t PackedBytes(DType dtype, int64_t rows, int64_t cols);

  size_t bytes() const override { return buffer_.bytes(); }
  absl::Span<const char> packed() const override { return buffer_.chars(); }
  // REQUIRES: float weights.
  int64_t num_strips() const { return (rows() + kStripRows - 1) / kStripRows; }
  // Strip i from step k on.
  const char* strip(int64_t i, int64_t k) const {
    return buffer_.chars().data() + RowBytes(dtype(), (i * cols() + k) * kStripRows);
  }

  // REQUIRES: block weights.
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
  void ReadRow(int64_t row, float* out) const;

 private:
  PanelMatrix(DType dtype, int64_t rows, int64_t cols);

  // Lays out the rows [first, first + count), a run of whole strips or pairs, or of their
  // beginning.
  void PackRows(int64_t first, int64_t count, const char* blocks);

  Buffer buffer_;
  const PanelFormat* format_ = nullptr;
  int64_t pair_code_bytes_ = 0;
  int64_t pair_scale_bytes_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_PANEL_MATRIX_H_
