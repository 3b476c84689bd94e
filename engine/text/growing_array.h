// GrowingArray: what a long text is taken apart into. As a std::vector, but it grows in place where
// the C library can move its pages: while a vector of 10 million symbols grows, an interrupt waits
// for 150 ms.
#ifndef LM_ENGINE_TEXT_GROWING_ARRAY_H_
#define LM_ENGINE_TEXT_GROWING_ARRAY_H_

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

namespace lm {

template <typename T>
class GrowingArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  GrowingArray() = default;
  ~GrowingArray() { std::free(data_); }
  GrowingArray(GrowingArray&& other) noexcept { *this = std::move(other); }
  GrowingArray& operator=(GrowingArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  const T& front() const { return data_[0]; }

  // std::bad_alloc, and nothing changes, where there is no memory.
  void push_back(const T& value) {
    if (size_ == capacity_) {
      const T copy = value;  // it may be an element
      Grow();
      data_[size_++] = copy;
    } else {
      data_[size_++] = value;
    }
  }
  void pop_back() { --size_; }
  // Keeps the memory.
  void clear() { size_ = 0; }

 private:
  void Grow() {
    const size_t capacity = std::max<size_t>(16, 2 * capacity_);
    void* data = std::realloc(data_, capacity * sizeof(T));
    if (data == nullptr) throw std::bad_alloc();
    data_ = static_cast<T*>(data);
    capacity_ = capacity;
  }

  T* data_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_GROWING_ARRAY_H_
