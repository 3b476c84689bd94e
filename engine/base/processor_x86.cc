#include "engine/base/processor.h"

namespace lm {

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

}  // namespace lm
