#include "engine/hf/row_source.h"

#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/float16.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/block_format.h"
#include "engine/gguf/message.h"

namespace lm {
namespace {

std::optional<DType> PlainType(absl::string_view name) {
  if (name == "F32") return DType::kF32;
  if (name == "F16") return DType::kF16;
  if (name == "BF16") return DType::kBF16;
  return std::nullopt;
}

class StoredRows final : public RowSource {
 public:
  StoredRows(const StoredTensor& tensor, DType stored, int64_t rows, int64_t cols,
             const RowForm& form)
      : RowSource(form.as_f32 ? DType::kF32 : stored, rows, cols),
        file_(tensor.file),
        offset_(tensor.offset + form.skip * RowBytes(stored, cols)),
        stored_(stored),
        form_(form) {}

  absl::Status Read(int64_t first, int64_t count, char* to) const override {
    const int64_t stored_bytes = RowBytes(stored_, cols());
    const bool as_is = form_.order.head_dim == 0 && dtype() == stored_ && form_.add == 0;
    if (as_is) return ReadStored(first, count, to);
    int64_t begin = first, num_rows = count;
    form_.order.Cover(&begin, &num_rows);
    std::vector<char> rows(num_rows * stored_bytes);
    RETURN_IF_ERROR(ReadStored(begin, num_rows, rows.data()));
    std::vector<float> values(cols());
    for (int64_t row = first; row < first + count; ++row, to += row_bytes()) {
      const char* const from = rows.data() + (form_.order.Stored(row) - begin) * stored_bytes;
      if (dtype() == stored_ && form_.add == 0) {
        std::memcpy(to, from, stored_bytes);
        continue;
      }
      DequantizeRow(stored_, from, cols(), values.data());
      for (float& value : values) value += form_.add;
      std::memcpy(to, values.data(), row_bytes());
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadStored(int64_t first, int64_t count, char* to) const {
    const uint64_t stored_bytes = RowBytes(stored_, cols());
    return file_->Read(offset_ + first * stored_bytes, absl::MakeSpan(to, count * stored_bytes));
  }

  const std::shared_ptr<const RandomAccessFile> file_;
  const uint64_t offset_;
  const DType stored_;
  const RowForm form_;
};

class ValueRows final : public RowSource {
 public:
  explicit ValueRows(std::vector<float> values)
      : RowSource(DType::kF32, static_cast<int64_t>(values.size()), 1),
        values_(std::move(values)) {}

  absl::Status Read(int64_t first, int64_t count, char* to) const override {
    std::memcpy(to, values_.data() + first, count * sizeof(float));
    return absl::OkStatus();
  }

 private:
  const std::vector<float> values_;
};

}  // namespace

void RowOrder::Cover(int64_t* first, int64_t* count) const {
  if (head_dim == 0) return;
  const int64_t begin = *first / head_dim * head_dim;
  const int64_t end = (*first + *count + head_dim - 1) / head_dim * head_dim;
  *first = begin;
  *count = end - begin;
}

absl::Status StoredTensorError(const StoredTensor& tensor, absl::string_view problem) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", tensor.file->path(), "': tensor ", Quoted(tensor.name), ": ", problem));
}

absl::StatusOr<std::unique_ptr<RowSource>> MakeStoredRows(const StoredTensor& tensor,
                                                          const RowForm& form) {
  const std::optional<DType> type = PlainType(tensor.type);
  if (!type) {
    return StoredTensorError(tensor,
                             absl::StrCat("wanted F32, F16 or BF16, got ", tensor.Description()));
  }
  const size_t dims = tensor.shape.size();
  if (dims < 1 || dims > 2 || tensor.bytes == 0 ||
      tensor.bytes > std::numeric_limits<int64_t>::max()) {
    return StoredTensorError(tensor, absl::StrCat("wanted one or two dimensions, none of them 0, "
                                                  "got ",
                                                  tensor.Description()));
  }
  const int64_t rows = static_cast<int64_t>(tensor.shape[0]);
  const int64_t cols = dims == 1 ? 1 : static_cast<int64_t>(tensor.shape[1]);
  if (cols > kMaxCols) {
    return StoredTensorError(tensor, absl::StrCat("wanted rows of at most ", kMaxCols,
                                                  " values, got ", tensor.Description()));
  }
  if (form.order.head_dim > 0 && rows % form.order.head_dim != 0) {
    return StoredTensorError(tensor, absl::StrCat("its rows are not whole heads of ",
                                                  form.order.head_dim, ": ", tensor.Description()));
  }
  if (form.skip >= rows) {
    return StoredTensorError(
        tensor, absl::StrCat("wanted more than ", form.skip, " rows, got ", tensor.Description()));
  }
  return std::make_unique<StoredRows>(tensor, *type, rows - form.skip, cols, form);
}

std::unique_ptr<RowSource> MakeValueRows(std::vector<float> values) {
  return std::make_unique<ValueRows>(std::move(values));
}

}  // namespace lm
