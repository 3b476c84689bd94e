// What becomes of every load and store of a kernel: see accesses.cc.
#ifndef LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_ACCESSES_H_
#define LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_ACCESSES_H_

#include <vector_types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/backend/cuda_on_host/device_memory.h"
#include "tests/engine/backend/cuda_on_host/simulation.h"

namespace lm::on_host {

// The launch that runs, and the thread whose turn it is.
struct Running {
  std::string kernel;
  int device = 0;
  std::vector<Region*> shared;  // dynamic, if there is some, and static ones
  const Region* dynamic = nullptr;
  Accessor by = {};
  dim3 block;
  uintptr_t stack_begin = 0, stack_end = 0;
  bool copies = false;  // the thread begins a copy
  // Whether the kernel has begun early, and the thread waited for those before: runs from
  // `first_unordered` on may still be at work until then.
  bool begins_early = false, has_waited = false;
  uint32_t first_unordered = 0;
  std::set<std::pair<const void*, FaultKind>> reported;
};

// Set while a thread of a kernel has its turn, in the thread of the program that runs it; else
// null.
extern thread_local Running* running;

// An access of the thread: `place` is a return address in the kernel, `aligned`: of an object of
// that size.
void See(const void* place, const void* address, int bytes, AccessKind kind, bool aligned);
// Of the 128 bytes that an address is of: they come to a cache, where they are read or written later.
void SeePrefetch(const void* place, const void* address);
// The place where a copy of 16 bytes goes to: it counts as written from now on, and nobody may look
// before it has arrived.
void SeeCopyBegin(const void* place, void* shared, const void* from);
void SeeCopyArrive(const void* shared);

// Reports a fault of the thread, once a place and launch.
void Complain(FaultKind kind, const std::string& what, const void* place);
// "thread 3 of block (0, 1)"
std::string WhoseTurn();

}  // namespace lm::on_host

#endif  // LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_ACCESSES_H_
