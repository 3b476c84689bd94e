// What the values of a chat template hold of memory while it is rendered: the containers that they
// are made of have an allocator that counts.
//
//   TemplateMemory memory;               // counts on this thread while it lives
//   TemplateValue::List list(1000);
//   assert(memory.held() >= 1000 * sizeof(TemplateValue));
#ifndef LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_MEMORY_H_
#define LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lm {

// Of one thread. Where that has no place for it (base/thread_slot.h) nothing is counted.
class TemplateMemory {
 public:
  TemplateMemory();
  ~TemplateMemory();
  TemplateMemory(const TemplateMemory&) = delete;
  TemplateMemory& operator=(const TemplateMemory&) = delete;

  // Bytes that were taken since it lives and not given back.
  int64_t held() const { return held_; }

  // Of this thread's, if it has one.
  static void Add(int64_t bytes) noexcept;

 private:
  TemplateMemory* const outer_;
  int64_t held_ = 0;
};

template <typename T>
class CountedAllocator {
 public:
  using value_type = T;

  CountedAllocator() = default;
  template <typename U>
  CountedAllocator(const CountedAllocator<U>&) noexcept {}

  T* allocate(size_t count) {
    T* const memory = std::allocator<T>().allocate(count);
    TemplateMemory::Add(static_cast<int64_t>(count * sizeof(T)));
    return memory;
  }
  void deallocate(T* memory, size_t count) noexcept {
    TemplateMemory::Add(-static_cast<int64_t>(count * sizeof(T)));
    std::allocator<T>().deallocate(memory, count);
  }
  bool operator==(const CountedAllocator&) const = default;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_MEMORY_H_
