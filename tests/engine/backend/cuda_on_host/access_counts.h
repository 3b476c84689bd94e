// What kernels ask of the memory and of the tensor cores, a launch: counted as a GPU's warps would
// issue it. Lanes' accesses from one place of the program, the n-th since their warp last met, are
// one instruction of the warp.
#ifndef LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_ACCESS_COUNTS_H_
#define LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_ACCESS_COUNTS_H_

#include <vector_types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/engine/backend/cuda_on_host/device_memory.h"

namespace lm::on_host {

// Instructions of warps for global memory, in one direction.
struct GlobalCounts {
  double requests = 0;
  double sectors = 0;  // of 32 bytes, each once an instruction
  double bytes = 0;    // that were asked for, each once an instruction

  double efficiency() const { return sectors == 0 ? 1 : bytes / (32 * sectors); }
};

// For shared memory: 32 banks of 4 bytes. A wavefront is a cycle.
struct SharedCounts {
  double requests = 0;
  double wavefronts = 0;
  double least_wavefronts = 0;  // for so many bytes, without conflicts of banks
};

// Of launches that are alike, in all.
struct LaunchCounts {
  std::string kernel;
  dim3 grid, block;
  int shared_bytes = 0;  // dynamic and static
  int64_t launches = 0;
  GlobalCounts loads, stores;
  SharedCounts shared;
  double dram_bytes = 0;  // of the sectors that are touched, each once a launch
  // Of launches that begin early: how many, and what they ask for before they wait for the kernel
  // before.
  double early_launches = 0, early_bytes = 0;
  double mma_int8 = 0;    // multiplications (and additions) of tensor cores, of int8
  double mma_16 = 0;      // of binary16 or bfloat16
  double mma_instructions = 0;
  double fma = 0;       // fmaf of a thread
  double shuffles = 0;  // of a warp, and reductions
  double barriers = 0;  // of a block
  // Of a warp, at most: bytes that it asks for before it waits for others (at a barrier, or for an
  // instruction of all lanes), and times that it waits with some under way. Copies to shared memory
  // are not among these: their waits are those for groups of copies, of which one that leaves n
  // groups under way is 1 / (n + 1).
  double most_burst_bytes = 0;
  double most_load_waits = 0;
  double most_copy_waits = 0;
};

// Between these calls the accesses of a launch are counted; `scale`: blocks of the grid to each one
// that is run.
void BeginLaunch(const std::string& kernel, dim3 grid, dim3 block, int shared_bytes,
                 bool begins_early);
void EndLaunch(double scale);

// The accesses that follow are a lane's first ones since its warp met.
void BeginLane();
// `place` is of the program; the run is the thread block's (device_memory.h).
struct AccessWay {
  bool writes = false;
  bool copies = false;  // to shared memory: nobody waits for it here
  bool early = false;   // the thread has not waited for the kernel before
};
void CountAccess(const void* place, uintptr_t address, int bytes, AccessWay way, Region* region,
                 uint32_t run, uint32_t first_run);
void CountEarlyPrefetch();  // of a thread
void BeginBlock();
void EndSegment(int warp);  // all its lanes have come to where they wait
void CountCopyWait(int warp, int groups_left);
void CountMma(bool int8, double multiplications);
void CountFma();
void CountShuffle();
void CountBarrier();

// What was counted since the last call, in the order of first launches.
std::vector<LaunchCounts> TakeCounts();

}  // namespace lm::on_host

#endif  // LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_ACCESS_COUNTS_H_
