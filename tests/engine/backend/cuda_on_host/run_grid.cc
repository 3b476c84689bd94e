#include "tests/engine/backend/cuda_on_host/run_grid.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "engine/base/random.h"
#include "tests/engine/backend/cuda_on_host/access_counts.h"
#include "tests/engine/backend/cuda_on_host/accesses.h"
#include "tests/engine/backend/cuda_on_host/kernel_symbols.h"

namespace lm::on_host {

Indices indices;

namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr unsigned kWarp = 32;
constexpr unsigned kMostThreads = 1024;
constexpr size_t kMostSharedBytes = 227 << 10;  // of a block, on compute capability 9.0
constexpr size_t kSharedWithoutAsking = 48 << 10;
constexpr char kGarbage = 0x6e;  // of F32 and of two F16 too large to go unseen

enum class State { kRunnable, kAtInstruction, kAtWarpBarrier, kAtBlockBarrier, kDone };

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
  const char* instruction = nullptr;    // kAtInstruction
  uint32_t shown[2][kShownWords] = {};  // by turns: who is slow still reads the last ones
  int turn = 0;
  std::vector<Copy> copies;  // of the groups that are not waited for, in order
  int group = 0;             // the one that is being made
  bool has_waited = false;   // for the kernel before
};

struct LearntKernel {
  Kernel kernel;
  KernelSymbols symbols;
  std::vector<std::unique_ptr<Region>> shared;
  size_t most_shared_bytes = kSharedWithoutAsking;
};

std::map<const void*, LearntKernel>& Kernels() {
  static auto* const kernels = new std::map<const void*, LearntKernel>;
  return *kernels;
}

std::mutex one_at_a_time;
std::vector<Thread> threads(kMostThreads);
ucontext_t leave;  // unused: no thread returns
jmp_buf scheduler;
const void* kernel_address;
const LearntKernel* learnt;
void** kernel_arguments;
alignas(16) char dynamic_shared[kMostSharedBytes];
Running launch;
std::vector<uint32_t> warp_times(kMostThreads / kWarp);
uint32_t last_run = 0;
// Of each device's last kernel that did not begin early; 0: there was none.
std::map<int, uint32_t> first_unordered;

Thread& Current() { return threads[indices.thread.x]; }

// Contexts are only entered with ucontext, whose switches are system calls, and then left and
// resumed with _setjmp. A thread serves one block after the other.
void RunThread() {
  for (;;) {
    learnt->kernel.run(kernel_address, kernel_arguments);
    Thread& thread = threads[indices.thread.x];
    thread.state = State::kDone;
    if (_setjmp(thread.place) == 0) _longjmp(scheduler, 1);
  }
}

void WaitAs(State state) {
  Thread& thread = threads[indices.thread.x];
  thread.state = state;
  if (_setjmp(thread.place) == 0) _longjmp(scheduler, 1);
}

// Runs a thread until it waits or ends.
void Resume(unsigned i) {
  Thread& thread = threads[i];
  indices.thread = dim3(i, 0, 0);
  launch.by.thread = i;
  launch.by.warp_time = warp_times[i / kWarp];
  launch.has_waited = thread.has_waited;
  launch.stack_begin = reinterpret_cast<uintptr_t>(thread.stack.get());
  launch.stack_end = launch.stack_begin + kStackBytes;
  if (TheSimulation().counts) BeginLane();
  running = &launch;
  if (_setjmp(scheduler) != 0) {
    running = nullptr;
    return;
  }
  if (thread.begun) _longjmp(thread.place, 1);
  thread.begun = true;
  setcontext(&thread.start);
}

// Reports a fault of the thread i, whose turn it is not.
void ComplainOf(unsigned i, FaultKind kind, const std::string& what) {
  launch.by.thread = i;
  running = &launch;
  Complain(kind, WhoseTurn() + what, nullptr);
  running = nullptr;
}

// Opens the barrier that the threads [begin, end) are all at, or have ended.
void Release(unsigned begin, unsigned end) {
  ++launch.by.time;
  for (unsigned i = begin; i < end; ++i) {
    if (threads[i].state != State::kDone) threads[i].state = State::kRunnable;
  }
}

// Runs the threads [begin, end) of a warp until they all wait for the block or have ended. False
// where they never will.
bool RunWarp(unsigned begin, unsigned end, bool backwards) {
  for (;;) {
    int num_done = 0, num_at[4] = {};
    const char* instruction = nullptr;
    unsigned waiting = begin;
    bool same = true;
    for (unsigned n = begin; n < end; ++n) {
      const unsigned i = backwards ? end - 1 - (n - begin) : n;
      if (threads[i].state == State::kRunnable) Resume(i);
      const Thread& thread = threads[i];
      if (thread.state == State::kDone) {
        ++num_done;
        continue;
      }
      ++num_at[static_cast<int>(thread.state)];
      if (thread.state == State::kAtBlockBarrier) continue;
      waiting = i;
      if (thread.state != State::kAtInstruction) continue;
      same = same && (instruction == nullptr || instruction == thread.instruction);
      instruction = thread.instruction;
    }
    if (TheSimulation().counts) EndSegment(static_cast<int>(begin / kWarp));
    const int at_instruction = num_at[static_cast<int>(State::kAtInstruction)];
    const int at_warp = num_at[static_cast<int>(State::kAtWarpBarrier)];
    if (at_instruction + at_warp == 0) return true;
    const int all = static_cast<int>(end - begin);
    if (at_instruction > 0) {
      if (at_instruction + num_done < all || !same) {
        ComplainOf(waiting, FaultKind::kWaitsForEver,
                   std::string(" waits at ") + instruction + ", others of its warp elsewhere");
        return false;
      }
      if (num_done > 0 || all < static_cast<int>(kWarp)) {
        ComplainOf(waiting, FaultKind::kMissingLanes,
                   std::string(" is at ") + instruction + " of a whole warp, of which there are " +
                       std::to_string(at_instruction) + " lanes");
      }
      for (unsigned i = begin; i < end; ++i) {
        if (threads[i].state == State::kAtInstruction) threads[i].state = State::kRunnable;
      }
      continue;
    }
    if (at_warp + num_done < all) {
      ComplainOf(waiting, FaultKind::kWaitsForEver,
                 " waits at __syncwarp, others of its warp elsewhere");
      return false;
    }
    Release(begin, end);
    warp_times[begin / kWarp] = launch.by.time;
  }
}

bool RunBlock(unsigned num_threads, bool backwards) {
  const unsigned num_warps = (num_threads + kWarp - 1) / kWarp;
  for (;;) {
    for (unsigned n = 0; n < num_warps; ++n) {
      const unsigned warp = backwards ? num_warps - 1 - n : n;
      if (!RunWarp(warp * kWarp, std::min((warp + 1) * kWarp, num_threads), backwards)) {
        return false;
      }
    }
    if (std::all_of(threads.begin(), threads.begin() + num_threads,
                    [](const Thread& thread) { return thread.state == State::kDone; })) {
      return true;
    }
    Release(0, num_threads);
    launch.by.block_time = launch.by.time;
    if (TheSimulation().counts) CountBarrier();
  }
}

void BeginThread(Thread* thread) {
  if (thread->stack == nullptr) thread->stack = std::make_unique<char[]>(kStackBytes);
  if (!thread->begun) {
    getcontext(&thread->start);
    thread->start.uc_stack.ss_sp = thread->stack.get();
    thread->start.uc_stack.ss_size = kStackBytes;
    thread->start.uc_link = &leave;
    makecontext(&thread->start, RunThread, 0);
  }
  thread->copies.clear();
  thread->group = 0;
  thread->has_waited = false;
  thread->state = State::kRunnable;
}

// A new number for a run of a block, which stamps know it by.
void NextRun() {
  if (++last_run < Stamp::kMostRuns) return;
  ForgetAccesses();
  for (auto& [address, kernel] : Kernels()) {
    for (auto& region : kernel.shared) region->Forget();
  }
  last_run = 1;
  for (auto& [device, run] : first_unordered) run = 1;
  launch.by.first_run = launch.first_unordered = 1;
}

Region* DynamicRegion(size_t bytes) {
  static auto* const region =
      new Region("(dynamic)", reinterpret_cast<uintptr_t>(dynamic_shared),
                 reinterpret_cast<uintptr_t>(dynamic_shared) + kMostSharedBytes, true);
  region->end = region->begin + bytes;
  return region;
}

}  // namespace

void LearnKernel(const void* address, Kernel kernel) {
  LearntKernel& entry = Kernels()[address];
  if (entry.kernel.run != nullptr) return;
  entry.kernel = std::move(kernel);
  entry.symbols = SymbolsOf(address);
  for (const SharedVariable& variable : entry.symbols.shared) {
    entry.shared.push_back(
        std::make_unique<Region>(variable.name, variable.begin, variable.end, true));
  }
}

const Kernel& KnownKernel(const void* address) { return Kernels().at(address).kernel; }

void AllowSharedBytes(const void* address, int bytes) {
  Kernels()[address].most_shared_bytes = bytes;
}

const uint32_t* ShownBy(int lane) {
  const Thread& own = Current();
  return threads[indices.thread.x / kWarp * kWarp + lane].shown[own.turn];
}

void Show(const char* instruction, const uint32_t* words, int count) {
  Thread& thread = Current();
  thread.turn ^= 1;
  std::copy_n(words, count, thread.shown[thread.turn]);
  thread.instruction = instruction;
  if (TheSimulation().counts && Lane() == 0) CountShuffle();
  WaitAs(State::kAtInstruction);
}

void Exchange(const uint32_t* words, int count, int lane, uint32_t* of_lane) {
  Show("shfl", words, count);
  std::copy_n(ShownBy(lane), count, of_lane);
}

char* DynamicShared() { return dynamic_shared; }

void BeginCopy(void* shared, const void* from) {
  SeeCopyBegin(__builtin_return_address(0), shared, from);
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
    SeeCopyArrive(copy.to);
    ++arrived;
  }
  thread.copies.erase(thread.copies.begin(), thread.copies.begin() + arrived);
  if (TheSimulation().counts && arrived > 0 && Lane() == 0) {
    CountCopyWait(static_cast<int>(indices.thread.x / kWarp), groups_left);
  }
}
void WaitForKernelBefore() {
  Thread& thread = Current();
  thread.has_waited = launch.has_waited = true;
  if (!TheSimulation().counts) return;
  // What is asked for behind is counted apart.
  thread.instruction = "griddepcontrol.wait";
  WaitAs(State::kAtInstruction);
}
void Prefetch(const void* from) { SeePrefetch(__builtin_return_address(0), from); }
void WaitForBlock() { WaitAs(State::kAtBlockBarrier); }
void WaitForWarp() { WaitAs(State::kAtWarpBarrier); }

uint32_t AtomicAdd(uint32_t* to, uint32_t value) {
  See(__builtin_return_address(0), to, sizeof(*to), AccessKind::kAtomic, true);
  return std::exchange(*to, *to + value);
}
uint64_t AtomicAdd(uint64_t* to, uint64_t value) {
  See(__builtin_return_address(0), to, sizeof(*to), AccessKind::kAtomic, true);
  return std::exchange(*to, *to + value);
}

void NoteMma(bool int8, int multiplications) {
  if (TheSimulation().counts && Lane() == 0) CountMma(int8, multiplications);
}
void NoteFma() {
  if (TheSimulation().counts) CountFma();
}

bool RunGrid(int device, const void* kernel, dim3 grid, dim3 block, size_t shared_bytes,
             void** arguments, bool begins_early) {
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  const bool counts = TheSimulation().counts;
  const absl::Cleanup restore = [counts] { TheSimulation().counts = counts; };
  TheSimulation().counts = counts && device == 0;
  const auto found = Kernels().find(kernel);
  if (found == Kernels().end() || block.x == 0 || block.x > kMostThreads || block.y != 1 ||
      block.z != 1 || grid.x == 0 || grid.y == 0 || grid.y > 65535 || grid.z != 1) {
    return false;
  }
  learnt = &found->second;
  const int64_t faults_before = NumFaults();
  launch = {};
  launch.device = device;
  launch.kernel = learnt->symbols.name;
  size_t all_shared = shared_bytes;
  if (shared_bytes > 0) launch.shared.push_back(DynamicRegion(shared_bytes));
  for (const auto& region : learnt->shared) {
    launch.shared.push_back(region.get());
    all_shared += region->end - region->begin;
  }
  const size_t most = std::max(learnt->most_shared_bytes, kSharedWithoutAsking);
  if (all_shared > most || most > kMostSharedBytes) {
    Report(FaultKind::kOutOfBounds, launch.kernel,
           "a launch with " + std::to_string(all_shared) + " bytes of shared memory, of " +
               std::to_string(most),
           nullptr);
    return false;
  }
  kernel_address = kernel;
  kernel_arguments = arguments;
  indices.shape = block;
  const Simulation& simulation = TheSimulation();
  launch.by.first_run = last_run + 1;
  if (!begins_early) first_unordered[device] = last_run + 1;
  launch.begins_early = begins_early;
  launch.first_unordered = first_unordered[device];
  if (simulation.counts) {
    BeginLaunch(launch.kernel, grid, block, static_cast<int>(all_shared), begins_early);
  }

  const int64_t blocks = int64_t{grid.x} * grid.y;
  int64_t most_blocks = simulation.most_blocks;
  for (const auto& [name, own] : simulation.most_blocks_of) {
    if (launch.kernel.compare(0, name.size(), name) == 0) most_blocks = own;
  }
  const int64_t runs = most_blocks > 0 ? std::min(most_blocks, blocks) : blocks;
  for (int64_t n = 0; n < runs; ++n) {
    // One of each run of blocks, a different one each time.
    const int64_t begin = n * blocks / runs, end = (n + 1) * blocks / runs;
    const int64_t at = begin + static_cast<int64_t>(RandomBits(blocks, n) % (end - begin));
    indices.block = dim3(static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x), 0);
    NextRun();
    launch.block = indices.block;
    launch.by.run = last_run;
    launch.by.time = launch.by.block_time = 1;
    std::fill(warp_times.begin(), warp_times.end(), 1);
    std::memset(dynamic_shared, kGarbage, shared_bytes);
    for (Region* region : launch.shared) {
      std::fill(region->copying.begin(), region->copying.end(), 0);
    }
    if (simulation.counts) BeginBlock();
    for (unsigned i = 0; i < block.x; ++i) BeginThread(&threads[i]);
    if (!RunBlock(block.x, (indices.block.x + indices.block.y) % 2 == 1)) {
      for (unsigned i = 0; i < block.x; ++i) threads[i].begun = false;  // it will begin anew
      break;
    }
    // The next kernel's wait is for this one only.
    if (begins_early && std::none_of(threads.begin(), threads.begin() + block.x,
                                     [](const Thread& thread) { return thread.has_waited; })) {
      ComplainOf(0, FaultKind::kTooEarly,
                 ", and all others, have not waited for the kernel before");
    }
  }
  if (simulation.counts) EndLaunch(static_cast<double>(blocks) / static_cast<double>(runs));
  return NumFaults() == faults_before;
}

}  // namespace lm::on_host
