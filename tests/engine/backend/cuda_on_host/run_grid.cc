#include "tests/engine/backend/cuda_on_host/run_grid.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace lm::on_host {
namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr unsigned kWarp = 32;

enum class State { kRunnable, kAtWarpBarrier, kAtBlockBarrier, kDone };

struct Copy {
  void* to;
  const void* from;
  int group;
};

struct Thread {
  ucontext_t start;
  jmp_buf place;  // where it goes on, once it has begun
  bool begun = false;
  std::unique_ptr<char[]> stack;
  State state = State::kRunnable;
  uint32_t shown[kShownWords] = {};
  std::vector<Copy> copies;  // of the groups that are not waited for, in order
  int group = 0;             // the one that is being made
};

std::vector<Thread> threads;
ucontext_t leave;  // unused: no thread returns
jmp_buf scheduler;
dim3 block_index;
dim3 thread_index;
dim3 block_shape;
const std::function<void()>* running = nullptr;
alignas(16) char dynamic_shared[227 << 10];
size_t dynamic_bytes = 0;
constexpr char kGarbage = 0x6e;  // of F32 and of two F16 too large to go unseen

Thread& Current() { return threads[thread_index.x]; }

// Contexts are only entered with ucontext, whose switches are system calls, and then left and
// resumed with _setjmp.
void RunThread() {
  (*running)();
  threads[thread_index.x].state = State::kDone;
  _longjmp(scheduler, 1);
}

void WaitAs(State state) {
  Thread& thread = threads[thread_index.x];
  thread.state = state;
  if (_setjmp(thread.place) == 0) _longjmp(scheduler, 1);
}

// Runs a thread until it waits or ends.
void Resume(unsigned i) {
  Thread& thread = threads[i];
  thread_index = dim3(i, 0, 0);
  if (_setjmp(scheduler) != 0) return;
  if (thread.begun) _longjmp(thread.place, 1);
  thread.begun = true;
  setcontext(&thread.start);
}

// Frees the threads [begin, end) if all that still run are at the same barrier.
bool Release(unsigned begin, unsigned end, State barrier) {
  bool any = false;
  for (unsigned i = begin; i < end; ++i) {
    if (threads[i].state == State::kDone) continue;
    if (threads[i].state != barrier) return false;
    any = true;
  }
  for (unsigned i = begin; i < end; ++i) {
    if (threads[i].state == barrier) threads[i].state = State::kRunnable;
  }
  return any;
}

// The threads of a warp run in turn until none can; true where some barrier was opened.
bool Advance(unsigned num_threads, bool backwards) {
  for (unsigned n = 0; n < num_threads; ++n) {
    unsigned i = backwards ? num_threads - 1 - n : n;
    if (threads[i].state != State::kRunnable) continue;
    Resume(i);
  }
  bool released = false;
  for (unsigned begin = 0; begin < num_threads; begin += kWarp) {
    released |= Release(begin, std::min(begin + kWarp, num_threads), State::kAtWarpBarrier);
  }
  return released || Release(0, num_threads, State::kAtBlockBarrier);
}

}  // namespace

const dim3& BlockIndex() { return block_index; }
const dim3& ThreadIndex() { return thread_index; }
const dim3& BlockShape() { return block_shape; }
const uint32_t* ShownBy(int lane) { return threads[thread_index.x / kWarp * kWarp + lane].shown; }
void Show(const uint32_t* words, int count) {
  std::copy_n(words, count, Current().shown);
  WaitForWarp();
}
char* DynamicShared() { return dynamic_shared; }

void BeginCopy(void* shared, const void* from) {
  char* const to = static_cast<char*>(shared);
  const bool aligned =
      reinterpret_cast<uintptr_t>(shared) % 16 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0;
  const bool dynamic = to >= dynamic_shared && to < dynamic_shared + sizeof(dynamic_shared);
  if (!aligned || (dynamic && to + 16 > dynamic_shared + dynamic_bytes)) {
    std::fprintf(stderr, "block (%u, %u), thread %u: a copy of 16 bytes to %p from %p\n",
                 block_index.x, block_index.y, thread_index.x, shared, from);
    std::abort();
  }
  std::memset(shared, kGarbage, 16);
  Current().copies.push_back({shared, from, Current().group});
}
void EndCopyGroup() { ++Current().group; }
void WaitForCopies(int groups_left) {
  Thread& thread = Current();
  size_t arrived = 0;
  for (const Copy& copy : thread.copies) {
    if (copy.group >= thread.group - groups_left) break;
    std::memcpy(copy.to, copy.from, 16);
    ++arrived;
  }
  thread.copies.erase(thread.copies.begin(), thread.copies.begin() + arrived);
}
void WaitForBlock() { WaitAs(State::kAtBlockBarrier); }
void WaitForWarp() { WaitAs(State::kAtWarpBarrier); }

void RunGrid(dim3 grid, dim3 block, int shared_bytes, const std::function<void()>& kernel) {
  running = &kernel;
  dynamic_bytes = shared_bytes;
  block_shape = block;
  if (threads.size() < block.x) threads.resize(block.x);
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; ++x) {
      block_index = dim3(x, y, 0);
      std::memset(dynamic_shared, kGarbage, dynamic_bytes);
      for (unsigned i = 0; i < block.x; ++i) {
        Thread& thread = threads[i];
        if (thread.stack == nullptr) thread.stack = std::make_unique<char[]>(kStackBytes);
        getcontext(&thread.start);
        thread.start.uc_stack.ss_sp = thread.stack.get();
        thread.start.uc_stack.ss_size = kStackBytes;
        thread.start.uc_link = &leave;
        thread.begun = false;
        thread.copies.clear();
        thread.group = 0;
        thread.state = State::kRunnable;
        makecontext(&thread.start, RunThread, 0);
      }
      // Every other block runs its threads from the last to the first, so that a missing barrier
      // shows whichever thread it is whose write is awaited.
      while (Advance(block.x, (x + y) % 2 == 1)) {
      }
      for (unsigned i = 0; i < block.x; ++i) {
        if (threads[i].state == State::kDone) continue;
        std::fprintf(stderr, "block (%u, %u): thread %u waits for ever\n", x, y, i);
        std::abort();
      }
    }
  }
}

}  // namespace lm::on_host
