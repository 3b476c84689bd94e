#include "engine/gguf/tensor_directory.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/checked_math.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/message.h"
#include "engine/gguf/tensor_type.h"

namespace lm {
namespace {

constexpr uint64_t kMaxNameBytes = 64;  // the format's own limit
constexpr uint32_t kMaxDims = 4;
// The least that an entry takes in the file: a name of one byte, one dimension, type, offset.
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 8 + 4 + 8;

absl::Status TensorError(const TensorInfo& tensor, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(tensor.name), ": ", problem));
}

std::string ShapeText(const TensorInfo& tensor) {
  return absl::StrCat("[", absl::StrJoin(tensor.dims, ", "), "]");
}

absl::Status ReadDims(ByteCursor* cursor, TensorInfo* tensor) {
  ASSIGN_OR_RETURN(uint32_t num_dims, cursor->ReadNumber<uint32_t>());
  if (num_dims < 1 || num_dims > kMaxDims) {
    return absl::InvalidArgumentError(
        absl::StrCat(num_dims, " dimensions, wanted 1 to ", kMaxDims));
  }
  tensor->dims.reserve(num_dims);
  for (uint32_t i = 0; i < num_dims; ++i) {
    ASSIGN_OR_RETURN(uint64_t dim, cursor->ReadNumber<uint64_t>());
    if (dim == 0) return absl::InvalidArgumentError(absl::StrCat("dimension ", i, " is 0"));
    tensor->dims.push_back(dim);
  }
  return absl::OkStatus();
}

// rows, cols and bytes from dims and dtype.
absl::Status SetSizes(TensorInfo* tensor) {
  const DTypeTraits& traits = Traits(tensor->dtype);
  const uint64_t cols = tensor->dims[0];
  std::optional<uint64_t> rows = 1;
  for (size_t i = 1; i < tensor->dims.size() && rows; ++i) {
    rows = CheckedMul(*rows, tensor->dims[i]);
  }
  std::optional<uint64_t> values = rows ? CheckedMul(*rows, cols) : std::nullopt;
  std::optional<uint64_t> bytes =
      values ? CheckedMul(*values / traits.block_size, traits.block_bytes) : std::nullopt;
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  if (!bytes || *values > kMax || *bytes > kMax) {
    return absl::InvalidArgumentError(absl::StrCat("its shape ", ShapeText(*tensor), " of ",
                                                   traits.name, " takes more than 2^63 bytes"));
  }
  const int block = StoredBlock(tensor->form, tensor->dtype);
  if (cols % block != 0) {
    return absl::InvalidArgumentError(absl::StrCat("rows of ", cols, " values do not divide into ",
                                                   traits.name, " blocks of ", block));
  }
  tensor->rows = static_cast<int64_t>(*rows);
  tensor->cols = static_cast<int64_t>(cols);
  tensor->bytes = *bytes;
  tensor->stored_bytes = StoredBytes(tensor->form, *bytes);
  return absl::OkStatus();
}

absl::Status ReadBody(ByteCursor* cursor, TensorInfo* tensor) {
  RETURN_IF_ERROR(ReadDims(cursor, tensor));
  ASSIGN_OR_RETURN(uint32_t type, cursor->ReadNumber<uint32_t>());
  std::optional<DType> dtype = DTypeOfGgml(type);
  if (!dtype && !FindStoredForm(type, &dtype.emplace(), &tensor->form)) {
    return absl::UnimplementedError(
        absl::StrCat("its type ", type, " (", GgmlTypeName(type),
                     ") is not supported; wanted F32, F16, BF16, Q4_0 to Q8_0, Q2_K to Q6_K, IQ1_S "
                     "to IQ4_XS, Q8_K, MXFP4, NVFP4, TQ1_0, TQ2_0, Q1_0 or Q2_0"));
  }
  tensor->dtype = *dtype;
  RETURN_IF_ERROR(SetSizes(tensor));
  ASSIGN_OR_RETURN(tensor->offset, cursor->ReadNumber<uint64_t>());
  return absl::OkStatus();
}

// Makes one tensor's offset absolute.
absl::Status PlaceTensor(uint64_t alignment, std::optional<uint64_t> data_begin,
                         uint64_t file_bytes, TensorInfo* tensor) {
  if (tensor->offset % alignment != 0) {
    return TensorError(*tensor, absl::StrCat("its offset ", tensor->offset,
                                             " is not a multiple of the alignment ", alignment));
  }
  std::optional<uint64_t> begin =
      data_begin ? CheckedAdd(*data_begin, tensor->offset) : std::nullopt;
  if (!begin || *begin > file_bytes || tensor->stored_bytes > file_bytes - *begin) {
    return TensorError(
        *tensor, absl::StrCat("its ", tensor->stored_bytes, " bytes at offset ", tensor->offset,
                              " of the data (which begins at ", data_begin.value_or(file_bytes),
                              ") reach past the end of the file at ", file_bytes,
                              "; is the file cut short?"));
  }
  tensor->offset = *begin;
  return absl::OkStatus();
}

absl::Status CheckOverlaps(const std::vector<TensorInfo>& tensors) {
  std::vector<const TensorInfo*> order;
  order.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const TensorInfo& left = *order[i - 1];
    const TensorInfo& right = *order[i];
    if (left.stored_bytes > right.offset - left.offset) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensors ", Quoted(left.name), " (bytes ", left.offset, " to ",
                       left.offset + left.stored_bytes, ") and ", Quoted(right.name), " (bytes ",
                       right.offset, " to ", right.offset + right.stored_bytes, ") overlap"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<TensorInfo>> ReadTensorDirectory(uint64_t count, int split,
                                                            ByteCursor* cursor) {
  if (count > cursor->remaining() / kMinEntryBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the header declares ", count, " tensors, where ", cursor->remaining(), " bytes are left"));
  }
  if (count > kMaxTensors) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the header declares ", count, " tensors; at most ", kMaxTensors, " are allowed"));
  }
  std::vector<TensorInfo> tensors;
  tensors.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    absl::StatusOr<std::string> name = cursor->ReadString(kMaxNameBytes);
    if (!name.ok()) return InContext(absl::StrCat("name of tensor ", i), name.status());
    if (name->empty()) {
      return absl::InvalidArgumentError(absl::StrCat("name of tensor ", i, " is empty"));
    }
    TensorInfo tensor;
    tensor.name = *std::move(name);
    tensor.split = split;
    absl::Status status = ReadBody(cursor, &tensor);
    if (!status.ok()) return InContext(absl::StrCat("tensor ", Quoted(tensor.name)), status);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

absl::StatusOr<uint64_t> PlaceTensors(uint64_t alignment, uint64_t directory_end,
                                      uint64_t file_bytes, std::vector<TensorInfo>* tensors) {
  const std::optional<uint64_t> data_begin = CheckedAlignUp(directory_end, alignment);
  uint64_t data_end = directory_end;  // of the tensor that reaches farthest
  for (TensorInfo& tensor : *tensors) {
    RETURN_IF_ERROR(PlaceTensor(alignment, data_begin, file_bytes, &tensor));
    data_end = std::max(data_end, tensor.offset + tensor.stored_bytes);
  }
  RETURN_IF_ERROR(CheckOverlaps(*tensors));
  return data_end;
}

}  // namespace lm
