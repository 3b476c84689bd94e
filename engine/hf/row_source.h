// RowSource: the bytes of one tensor of a GGUF file, made when they are read from what another
// checkpoint has in its place.
#ifndef LM_ENGINE_HF_ROW_SOURCE_H_
#define LM_ENGINE_HF_ROW_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/hf/safetensors.h"
#include "engine/tensor/dtype.h"

namespace lm {

// Values a row: no model has more, and of a row all is made for any part of it.
inline constexpr int64_t kMaxCols = int64_t{1} << 20;

// Immutable for its users; thread-safe. Rows have at most kMaxCols values.
class RowSource {
 public:
  virtual ~RowSource() = default;

  // Writes rows [first, first + count), row_bytes() each, one behind another.
  // REQUIRES: 0 <= first, 1 <= count, first + count <= rows().
  virtual absl::Status Read(int64_t first, int64_t count, char* to) const = 0;

  DType dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t row_bytes() const { return RowBytes(dtype_, cols_); }

 protected:
  RowSource(DType dtype, int64_t rows, int64_t cols) : dtype_(dtype), rows_(rows), cols_(cols) {}

 private:
  const DType dtype_;
  const int64_t rows_, cols_;
};

// How rows of W_q and W_k are ordered. Hugging Face turns the halves of a head together, GGUF's
// "llama" neighbours: row 2i + j of a head is what is row j head_dim / 2 + i there.
struct RowOrder {
  int64_t head_dim = 0;  // 0: as stored

  int64_t Stored(int64_t row) const {
    if (head_dim == 0) return row;
    const int64_t i = row % head_dim;
    return row - i + i % 2 * (head_dim / 2) + i / 2;
  }
  // The stored rows of the heads that rows [first, first + count) are of: *first and *count become
  // theirs.
  void Cover(int64_t* first, int64_t* count) const;
};

// A tensor as it is stored, with rows in another order, as F32, or with 1 added to each value.
struct RowForm {
  RowOrder order;
  bool as_f32 = false;
  float add = 0;     // REQUIRES: 0, or as_f32
  int64_t skip = 0;  // leading rows that are left out; REQUIRES: 0, or order is as stored
};

// Of F32, F16 or BF16. Vectors have rows of one value. InvalidArgument, naming file and tensor, for
// any other type, for more than two dimensions and for a size of 0, of longer rows or of no whole
// heads.
absl::StatusOr<std::unique_ptr<RowSource>> MakeStoredRows(const StoredTensor& tensor,
                                                          const RowForm& form);

// Values of our own, one a row.
std::unique_ptr<RowSource> MakeValueRows(std::vector<float> values);

// "'/models/x/model.safetensors': tensor "x": `problem`"
absl::Status StoredTensorError(const StoredTensor& tensor, absl::string_view problem);

}  // namespace lm

#endif  // LM_ENGINE_HF_ROW_SOURCE_H_
