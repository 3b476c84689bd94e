// What the processor can do, asked once, and how much of it this process may use.
#ifndef LM_ENGINE_BASE_CPU_FEATURES_H_
#define LM_ENGINE_BASE_CPU_FEATURES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lm {

// The instruction sets that kernels are written for, in ascending order of preference.
enum class Isa {
  kPortable,    // plain C++
  kAvx2,        // AVX2 + FMA + F16C
  kAvx512Vnni,  // AVX-512 F/BW/VL/DQ + VNNI
};

absl::string_view IsaName(Isa isa);

// The best instruction set that this processor and its operating system support. The environment
// variable LM_ISA (portable, avx2, avx512_vnni) lowers it, for tests and comparisons.
Isa BestIsa();

// All that can run here, from kPortable up to BestIsa().
std::vector<Isa> AvailableIsas();

// The processor's own name; empty where the system does not tell.
std::string CpuName();

// The machine's memory; 0 where the system does not tell.
int64_t PhysicalMemoryBytes();

// The CPUs this process may really use: its affinity mask, limited by the cgroup's quota. >= 1.
int AvailableCpus();

}  // namespace lm

#endif  // LM_ENGINE_BASE_CPU_FEATURES_H_
