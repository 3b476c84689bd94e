// How many threads may be asked for.
#ifndef LM_ENGINE_BASE_MAX_THREADS_H_
#define LM_ENGINE_BASE_MAX_THREADS_H_

namespace lm {

// More than a model can use; each takes a stack.
inline constexpr int kMaxThreads = 1024;

}  // namespace lm

#endif  // LM_ENGINE_BASE_MAX_THREADS_H_
