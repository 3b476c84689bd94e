// Runs a kernel on the host, block after block; a block's threads take turns, each until its next
// barrier. So an index that is wrong, a barrier that is missing where a later thread's write is
// read, and threads that wait for each other for ever all show; what depends on real concurrency
// does not.
#ifndef LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_RUN_GRID_H_
#define LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_RUN_GRID_H_

#include <vector_types.h>

#include <cstdint>
#include <cstring>
#include <functional>

namespace lm::on_host {

// Aborts where the threads of a block wait at different barriers.
void RunGrid(dim3 grid, dim3 block, const std::function<void()>& kernel);

// Of the thread that runs.
const dim3& BlockIndex();
const dim3& ThreadIndex();
inline int Lane() { return static_cast<int>(ThreadIndex().x % 32); }

void WaitForBlock();
void WaitForWarp();

// A word that each thread shows to its warp.
uint32_t& ShownBy(int lane);

// The value that `lane` passes; a barrier of the warp.
template <typename T>
T FromLane(T value, int lane) {
  static_assert(sizeof(T) == sizeof(uint32_t));
  std::memcpy(&ShownBy(Lane()), &value, sizeof(value));
  WaitForWarp();
  T result;
  std::memcpy(&result, &ShownBy(lane), sizeof(result));
  WaitForWarp();
  return result;
}

}  // namespace lm::on_host

#endif  // LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_RUN_GRID_H_
