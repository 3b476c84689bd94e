// Included by kernels_*.cc.
#ifndef LM_ENGINE_BACKEND_CPU_PREFETCH_H_
#define LM_ENGINE_BACKEND_CPU_PREFETCH_H_

namespace lm {
namespace {

// Asks for memory that will be read soon after `bytes` bytes at p: the hardware alone fetched
// 16-bit weights at 8 of 12 GB/s.
inline void PrefetchAhead(const void* p, int bytes) {
  constexpr int kDistance = 4096;
  for (int i = 0; i < bytes; i += 64) {
    __builtin_prefetch(static_cast<const char*>(p) + kDistance + i);
  }
}

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_PREFETCH_H_
