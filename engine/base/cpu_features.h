// What the processor can do, asked once, and how much of it this process may use.
#ifndef LM_ENGINE_BASE_CPU_FEATURES_H_
#define LM_ENGINE_BASE_CPU_FEATURES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lm {

// The instruction sets that kernels are written for.
enum class Isa {
  kPortable,     // plain C++
  kAvx2,         // x86-64: AVX2 + FMA + F16C
  kAvxVnni,      // and AVX-VNNI
  kAvx512Vnni,   // AVX-512 F/BW/VL/DQ + VNNI
  kNeon,         // ARM64: ARMv8.0
  kNeonDotprod,  // FEAT_DotProd
  kNeonI8mm,     // FEAT_DotProd + FEAT_I8MM
};

// portable, avx2, avx_vnni, avx512_vnni, neon, neon_dotprod, neon_i8mm.
absl::string_view IsaName(Isa isa);

// Those that this processor and its operating system support, the best one last. The environment
// variable LM_CPU names one of them, and then it is the last, for tests and comparisons.
const std::vector<Isa>& AvailableIsas();

// InvalidArgument, with those that there are, where LM_CPU names none of them: AvailableIsas() has
// all of them then, and none is to be computed with, for what is measured would be another one's.
const absl::Status& CheckNamedIsa();

inline Isa BestIsa() { return AvailableIsas().back(); }

// `isas` as far as the one of that name; all of them for an empty name. InvalidArgument, as a value
// of LM_CPU, for a name that is not among them.
absl::StatusOr<std::vector<Isa>> IsasUpTo(absl::string_view name, std::vector<Isa> isas);

// The processor's own name; empty where the system does not tell.
std::string CpuName();

// The memory this process may really have: the machine's, limited by the cgroup's; 0 where the
// system does not tell.
int64_t AvailableMemoryBytes();

// The CPUs this process may really use: its affinity mask, limited by the cgroup's quota. >= 1.
int AvailableCpus();

// The threads that a model computes with unless it is told otherwise: as many as this process may
// have fast cores (cpu_topology.h), and no more than its cgroup's quota. >= 1.
int DefaultThreads();

}  // namespace lm

#endif  // LM_ENGINE_BASE_CPU_FEATURES_H_
