// A pointer of each thread's own. For a thread_local the dynamic linker takes memory at a thread's
// first use of any of a library's, and ends the process where there is none; this one can fail.
#ifndef LM_ENGINE_BASE_THREAD_SLOT_H_
#define LM_ENGINE_BASE_THREAD_SLOT_H_

#include <pthread.h>

namespace lm {

// For static storage: it is never destroyed, as threads go on while exit() does its work.
template <typename T>
class ThreadSlot {
 public:
  ThreadSlot() noexcept : made_(pthread_key_create(&key_, nullptr) == 0) {}
  ThreadSlot(const ThreadSlot&) = delete;
  ThreadSlot& operator=(const ThreadSlot&) = delete;

  // Null until it is set.
  T* get() const noexcept {
    return made_ ? static_cast<T*>(pthread_getspecific(key_)) : nullptr;
  }

  // False, and nothing is set, where the process has no more keys, or no memory: which takes some
  // only after 32 keys of others. Null can always be set.
  bool set(T* value) noexcept { return made_ && pthread_setspecific(key_, value) == 0; }

 private:
  pthread_key_t key_;
  const bool made_;
};

}  // namespace lm

#endif  // LM_ENGINE_BASE_THREAD_SLOT_H_
