// What differs from one processor's family to the next: processor_x86.cc and processor_aarch64.cc
// have it, processor_other.cc does without. CMake chooses.
#ifndef LM_ENGINE_BASE_PROCESSOR_H_
#define LM_ENGINE_BASE_PROCESSOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/base/cpu_features.h"

namespace lm {

// The instruction sets that this processor and its operating system support, kPortable first, the
// best one last.
std::vector<Isa> DetectIsas();

// Tells the processor that its thread only waits for another's store.
void PauseInSpin();

// Whether this thread rounds to nearest, keeps what is small and traps nothing; false where that is
// not to be told cheaply.
bool RoundsByDefault();

// MixBlocks, as this processor does it best.
void MixDigestBlocks(uint64_t (&lanes)[4], const char* blocks, size_t count);

}  // namespace lm

#endif  // LM_ENGINE_BASE_PROCESSOR_H_
