// The error that memory ran out, for where there is none to make one: made when the library is
// loaded, and copied without an allocation.
#ifndef LM_ENGINE_BASE_OUT_OF_MEMORY_H_
#define LM_ENGINE_BASE_OUT_OF_MEMORY_H_

#include "absl/status/status.h"

namespace lm {

// ResourceExhausted, "out of memory".
const absl::Status& OutOfMemory() noexcept;

// What is being handled, in a catch block, as a status; never throws itself.
absl::Status CurrentExceptionAsStatus() noexcept;

// Takes this thread's storage for exceptions, once; else the first one that is thrown takes it, and
// glibc ends the process where there is no memory for it by then. At the beginning of every thread
// of ours, and where the host's come in.
void ReadyToThrow() noexcept;

}  // namespace lm

#endif  // LM_ENGINE_BASE_OUT_OF_MEMORY_H_
