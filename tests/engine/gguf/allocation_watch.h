// Watches what the test program allocates with operator new.
#ifndef LM_TESTS_ENGINE_GGUF_ALLOCATION_WATCH_H_
#define LM_TESTS_ENGINE_GGUF_ALLOCATION_WATCH_H_

#include <cstddef>

namespace lm {

// Bytes that are allocated now, by all threads.
size_t AllocatedBytes();

// The largest AllocatedBytes() since ResetPeakBytes().
size_t PeakBytes();
void ResetPeakBytes();

}  // namespace lm

#endif  // LM_TESTS_ENGINE_GGUF_ALLOCATION_WATCH_H_
