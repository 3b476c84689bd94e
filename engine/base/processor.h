// What differs from one processor's family to the next: processor_x86.cc has it, processor_other.cc
// does without. CMake chooses.
#ifndef LM_ENGINE_BASE_PROCESSOR_H_
#define LM_ENGINE_BASE_PROCESSOR_H_

#include "engine/base/cpu_features.h"

namespace lm {

// The best instruction set that this processor and its operating system support.
Isa DetectIsa();

// Tells the processor that its thread only waits for another's store.
void PauseInSpin();

}  // namespace lm

#endif  // LM_ENGINE_BASE_PROCESSOR_H_
