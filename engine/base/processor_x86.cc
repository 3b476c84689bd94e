// processor.h for x86.
#include "engine/base/processor.h"

#include "engine/base/digest_lanes.h"

namespace lm {
namespace {

// BMI2's product of words leaves its halves in any registers and the flags alone: half as fast
// again.
__attribute__((target("bmi2"))) void MixBlocksBmi2(uint64_t (&lanes)[4], const char* blocks,
                                                   size_t count) {
  MixBlocks(lanes, blocks, count);
}

}  // namespace

std::vector<Isa> DetectIsas() {
  __builtin_cpu_init();
  std::vector<Isa> isas = {Isa::kPortable};
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c")) {
    return isas;
  }
  isas.push_back(Isa::kAvx2);
  if (__builtin_cpu_supports("avxvnni")) isas.push_back(Isa::kAvxVnni);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vnni")) {
    isas.push_back(Isa::kAvx512Vnni);
  }
  return isas;
}

void PauseInSpin() { __builtin_ia32_pause(); }

bool RoundsByDefault() {
  constexpr unsigned kDefault = 0x1f80, kFlags = 0x3f;  // of MXCSR; flags say what has happened
  return (__builtin_ia32_stmxcsr() & ~kFlags) == kDefault;
}

void MixDigestBlocks(uint64_t (&lanes)[4], const char* blocks, size_t count) {
  if (__builtin_cpu_supports("bmi2")) {
    MixBlocksBmi2(lanes, blocks, count);
  } else {
    MixBlocks(lanes, blocks, count);
  }
}

}  // namespace lm
