// A number that tells a process from those that are forked from it.
//
//   const uint64_t owner = ThisProcess();
//   ...
//   if (ThisProcess() != owner) ... a forked child: there are no threads but this one ...
#ifndef LM_ENGINE_BASE_THIS_PROCESS_H_
#define LM_ENGINE_BASE_THIS_PROCESS_H_

#include <cstdint>

namespace lm {

// Never 0. Its process's number is not enough: in a namespace of its own a child may have that of
// its parent.
uint64_t ThisProcess();

}  // namespace lm

#endif  // LM_ENGINE_BASE_THIS_PROCESS_H_
