#include "engine/hf/row_file.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/gguf_header.h"

namespace lm {
namespace {

class RowFile final : public RandomAccessFile {
 public:
  RowFile(std::string path, const Metadata& metadata, std::vector<RowTensor> tensors)
      : path_(std::move(path)), tensors_(std::move(tensors)) {
    GgufHeader header;
    for (const auto& [key, value] : metadata.values()) header.Add(key, value);
    for (const RowTensor& tensor : tensors_) {
      header.AddTensor(tensor.name, tensor.dims, tensor.rows->dtype());
    }
    front_ = header.Finish();
    for (size_t i = 0; i < tensors_.size(); ++i) {
      begins_.push_back(front_.size() + header.offset(i));
    }
    size_ = front_.size() + header.data_bytes();
  }

  uint64_t Size() const override { return size_; }
  const std::string& path() const override { return path_; }

  absl::Status Read(uint64_t offset, absl::Span<char> out) const override {
    if (offset > size_ || out.size() > size_ - offset) {
      return absl::OutOfRangeError(absl::StrCat("'", path_, "' ends at offset ", size_, ", wanted ",
                                                out.size(), " bytes at ", offset));
    }
    while (!out.empty()) {
      size_t done;
      if (offset < front_.size()) {
        done = std::min<uint64_t>(out.size(), front_.size() - offset);
        std::memcpy(out.data(), front_.data() + offset, done);
      } else {
        const size_t i =
            std::upper_bound(begins_.begin(), begins_.end(), offset) - begins_.begin() - 1;
        const uint64_t end = i + 1 < begins_.size() ? begins_[i + 1] : size_;
        done = std::min<uint64_t>(out.size(), end - offset);
        RETURN_IF_ERROR(ReadTensor(*tensors_[i].rows, offset - begins_[i], out.subspan(0, done)));
      }
      offset += done;
      out.remove_prefix(done);
    }
    return absl::OkStatus();
  }

 private:
  // Bytes of a tensor from `offset` on, and zeros behind it.
  static absl::Status ReadTensor(const RowSource& source, uint64_t offset, absl::Span<char> out) {
    const uint64_t row_bytes = source.row_bytes(), bytes = source.rows() * row_bytes;
    while (!out.empty()) {
      size_t done = out.size();
      const uint64_t in_row = offset % row_bytes;
      if (offset >= bytes) {
        std::memset(out.data(), 0, done);
      } else if (in_row == 0 && out.size() >= row_bytes) {
        const uint64_t rows = std::min(out.size() / row_bytes, (bytes - offset) / row_bytes);
        RETURN_IF_ERROR(source.Read(offset / row_bytes, rows, out.data()));
        done = rows * row_bytes;
      } else {
        std::vector<char> row(row_bytes);
        RETURN_IF_ERROR(source.Read(offset / row_bytes, 1, row.data()));
        done = std::min<uint64_t>(out.size(), row_bytes - in_row);
        std::memcpy(out.data(), row.data() + in_row, done);
      }
      offset += done;
      out.remove_prefix(done);
    }
    return absl::OkStatus();
  }

  const std::string path_;
  const std::vector<RowTensor> tensors_;
  std::string front_;
  std::vector<uint64_t> begins_;
  uint64_t size_ = 0;
};

}  // namespace

std::unique_ptr<RandomAccessFile> MakeRowFile(std::string path, const Metadata& metadata,
                                              std::vector<RowTensor> tensors) {
  return std::make_unique<RowFile>(std::move(path), metadata, std::move(tensors));
}

}  // namespace lm
