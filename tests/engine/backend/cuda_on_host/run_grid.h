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
void RunGrid(dim3 grid, dim3 block, int shared_bytes, const std::function<void()>& kernel);

// Of the thread that runs.
const dim3& BlockIndex();
const dim3& ThreadIndex();
const dim3& BlockShape();
inline int Lane() { return static_cast<int>(ThreadIndex().x % 32); }

void WaitForBlock();
void WaitForWarp();

// The words that each thread shows to its warp, kShownWords of them.
inline constexpr int kShownWords = 8;
const uint32_t* ShownBy(int lane);
// Shows some, and waits until the whole warp has.
void Show(const uint32_t* words, int count);

// The value that `lane` passes; a barrier of the warp.
template <typename T>
T FromLane(T value, int lane) {
  static_assert(sizeof(T) % sizeof(uint32_t) == 0 && sizeof(T) <= 8);
  uint32_t words[sizeof(T) / sizeof(uint32_t)];
  std::memcpy(words, &value, sizeof(value));
  Show(words, sizeof(T) / sizeof(uint32_t));
  T result;
  std::memcpy(&result, ShownBy(lane), sizeof(result));
  WaitForWarp();
  return result;
}

// What the launch has asked for, full of garbage when a block begins.
char* DynamicShared();

// A copy of 16 bytes to shared memory, where there is garbage until the thread waits for its group.
// Aborts where one of both addresses is not aligned, or the target beyond the block's memory.
void BeginCopy(void* shared, const void* from);
void EndCopyGroup();
void WaitForCopies(int groups_left);

}  // namespace lm::on_host

#endif  // LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_RUN_GRID_H_
