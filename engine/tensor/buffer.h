// Buffer owns memory; Tensor (tensor.h) looks at it.
#ifndef LM_ENGINE_TENSOR_BUFFER_H_
#define LM_ENGINE_TENSOR_BUFFER_H_

#include <cstddef>
#include <functional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lm {

// A move-only owner of bytes in host or device memory. Host buffers are zero and begin with a cache
// line. From 64 KiB on they come straight from the operating system: page-aligned, and committed
// only when touched, so a large KV pool costs what is used of it.
class Buffer {
 public:
  using Deleter = std::function<void(void* data, size_t bytes)>;

  Buffer() = default;
  // Takes memory that `deleter` will free; for backends with memory of their own.
  Buffer(void* data, size_t bytes, Deleter deleter)
      : data_(data), bytes_(bytes), deleter_(std::move(deleter)) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(deleter_, other.deleter_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) deleter_(data_, bytes_);
  }

  // ResourceExhausted, naming the size, where the system refuses.
  static absl::StatusOr<Buffer> AllocateHost(size_t bytes);

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  absl::Span<char> chars() const { return {static_cast<char*>(data_), bytes_}; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Deleter deleter_;
};

// Has the system commit host memory that is to be written soon: what it has in it stays. Where that
// cannot be, it is committed when it is written. Thread-safe.
void CommitHost(absl::Span<char> memory);

}  // namespace lm

#endif  // LM_ENGINE_TENSOR_BUFFER_H_
