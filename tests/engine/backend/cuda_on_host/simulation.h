// What the simulator checks and counts, and what it has found: kernels run on the host as
// run_grid.h says, and every load and store of theirs is seen (accesses.cc).
//
//   Simulation& simulation = TheSimulation();
//   simulation.most_blocks = 4;               // of a launch; counts are scaled to all
//   ...                                       // launch kernels
//   for (const Fault& fault : TakeFaults()) std::cerr << fault.Text();
#ifndef LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_SIMULATION_H_
#define LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_SIMULATION_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lm::on_host {

struct Simulation {
  bool checks = true;   // races, bounds, alignment, copies that are not waited for
  bool counts = false;  // access_counts.h; of the first device
  // Thread blocks of a launch that are run, spread over the grid; 0: all. Those of the kernels
  // whose names begin so have a number of their own.
  int64_t most_blocks = 0;
  std::vector<std::pair<std::string, int64_t>> most_blocks_of = {};
};
extern Simulation the_simulation;
inline Simulation& TheSimulation() { return the_simulation; }

enum class FaultKind {
  kRace,          // an access and a write of another thread without a barrier between them
  kUnwaitedCopy,  // an access to what a copy may still be bringing
  kOutOfBounds,   // of shared memory or of an allocation
  kMisaligned,    // an address that is not a multiple of the access's size
  kMissingLanes,  // a warp's instruction that some of its lanes have not come to
  kWaitsForEver,  // threads that wait at different barriers
  kTooEarly,      // what a kernel before may still use is used, or nobody has waited for it
  kOtherDevice,   // another device's memory, which the kernel's may not write, or not read
  kChangedHost,   // page-locked memory that changed while it may still have been copied from
};

struct Fault {
  FaultKind kind;
  std::string kernel;  // its name, with the template's arguments
  std::string what;    // the access, the memory and the thread
  std::string where;   // file and line, where the program knows them

  // "race in TransposeKernel: thread 3 of block (0, 0) reads ...; at transpose.cu:17"
  std::string Text() const;
};

// The faults since the last call, in the order in which they were found: one for each place of the
// program and launch.
std::vector<Fault> TakeFaults();

// `kernel` and `what` as in Fault; `place` is a return address in the kernel, or null. To stderr,
// too, unless a test wants to see the faults (KeepFaults).
void Report(FaultKind kind, const std::string& kernel, const std::string& what, const void* place);
int64_t NumFaults();  // in all

// While it lives faults are not printed.
class KeepFaults {
 public:
  KeepFaults();
  ~KeepFaults();
  KeepFaults(const KeepFaults&) = delete;
  KeepFaults& operator=(const KeepFaults&) = delete;
};

}  // namespace lm::on_host

#endif  // LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_SIMULATION_H_
