// Memory between the loops of one op: grows to the largest request and stays.
#ifndef LM_ENGINE_BACKEND_CPU_SCRATCH_H_
#define LM_ENGINE_BACKEND_CPU_SCRATCH_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/base/status_macros.h"
#include "engine/tensor/buffer.h"

namespace lm {

class Scratch {
 public:
  // At least `bytes` bytes on a cache line, of unknown contents; valid until the next call.
  absl::StatusOr<char*> Get(int64_t bytes) {
    if (bytes > static_cast<int64_t>(buffer_.bytes())) {
      buffer_ = Buffer();
      ASSIGN_OR_RETURN(buffer_, Buffer::AllocateHost(bytes));
    }
    return static_cast<char*>(buffer_.data());
  }

 private:
  Buffer buffer_;
};

// Hands out the parts of a piece of scratch, each on a cache line. With no memory behind it, it
// adds up how much is wanted: lay out once to measure and once to use.
class ScratchLayout {
 public:
  explicit ScratchLayout(char* begin = nullptr) : begin_(begin) {}

  template <typename T>
  T* Take(int64_t count) {
    T* part = begin_ == nullptr ? nullptr : reinterpret_cast<T*>(begin_ + used_);
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return part;
  }
  int64_t used() const { return used_; }

 private:
  char* begin_;
  int64_t used_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_SCRATCH_H_
