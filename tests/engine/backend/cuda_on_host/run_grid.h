// Runs a kernel on the host, block after block; a block's threads take turns, each until its warp
// or its block waits. What the kernel loads and stores is seen (accesses.cc), checked and counted
// (simulation.h): so a wrong index, a barrier that is missing, what is read before its copy is
// waited for, and threads that wait for each other for ever all show, in whatever order threads run
// here. One kernel at a time.
#ifndef LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_RUN_GRID_H_
#define LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_RUN_GRID_H_

#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace lm::on_host {

// A kernel that can be launched by its address, as the runtime's functions do.
struct Kernel {
  void (*run)(const void* kernel, void** arguments) = nullptr;
  std::vector<size_t> argument_bytes;
};
void LearnKernel(const void* address, Kernel kernel);
const Kernel& KnownKernel(const void* address);  // REQUIRES: it was learnt

// How much dynamic shared memory the kernel may have, which is 48 KiB unless it was asked for more.
void AllowSharedBytes(const void* address, int bytes);

// False where a fault was found, or the launch asks for more than there is. A kernel that begins
// early has to wait for the device's ones before it, since one that does not, by itself.
bool RunGrid(int device, const void* kernel, dim3 grid, dim3 block, size_t shared_bytes,
             void** arguments, bool begins_early);

// Of the thread that runs: a GPU has them in registers.
struct Indices {
  dim3 block, thread, shape;
};
extern Indices indices;
inline int Lane() { return static_cast<int>(indices.thread.x % 32); }

void WaitForBlock();  // __syncthreads
void WaitForWarp();   // __syncwarp

// The words that each thread shows to its warp, kShownWords of them.
inline constexpr int kShownWords = 8;
const uint32_t* ShownBy(int lane);
// Shows some, and waits until the whole warp has. Orders no accesses to memory. `instruction` is a
// name, the same one in all lanes.
void Show(const char* instruction, const uint32_t* words, int count);

// Shows some, and gives those of `lane`.
void Exchange(const uint32_t* words, int count, int lane, uint32_t* of_lane);

// The value that `lane` passes.
template <typename T>
T FromLane(T value, int lane) {
  static_assert(sizeof(T) % sizeof(uint32_t) == 0 && sizeof(T) <= 8);
  uint32_t words[sizeof(T) / sizeof(uint32_t)], result_words[sizeof(T) / sizeof(uint32_t)];
  std::memcpy(words, &value, sizeof(value));
  Exchange(words, sizeof(T) / sizeof(uint32_t), lane, result_words);
  T result;
  std::memcpy(&result, result_words, sizeof(result));
  return result;
}

// What the launch has asked for, full of garbage when a block begins.
char* DynamicShared();

// A copy of 16 bytes to shared memory, where there is garbage until the thread waits for its group.
void BeginCopy(void* shared, const void* from);
void EndCopyGroup();
void WaitForCopies(int groups_left);

void WaitForKernelBefore();
void Prefetch(const void* from);  // the 128 bytes that it is of

// *to += value, by one thread at a time; returns what was there.
uint32_t AtomicAdd(uint32_t* to, uint32_t value);
uint64_t AtomicAdd(uint64_t* to, uint64_t value);

// For the counts.
void NoteMma(bool int8, int multiplications);
void NoteFma();

template <typename... Parameters>
struct KernelCall {
  // (What it reads is the launch's, not the device's.)
  __attribute__((no_sanitize("thread"))) static void Run(const void* kernel, void** arguments) {
    Call(reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(kernel)), arguments,
         std::index_sequence_for<Parameters...>());
  }
  template <size_t... kIndex>
  __attribute__((no_sanitize("thread"))) static void Call(void (*kernel)(Parameters...),
                                                          void** arguments,
                                                          std::index_sequence<kIndex...>) {
    kernel(*static_cast<Parameters*>(arguments[kIndex])...);
  }
};

}  // namespace lm::on_host

#endif  // LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_RUN_GRID_H_
