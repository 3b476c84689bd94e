#include "engine/base/processor.h"

namespace lm {

Isa DetectIsa() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
  if (avx512) return Isa::kAvx512Vnni;
  return avx2 ? Isa::kAvx2 : Isa::kPortable;
}

void PauseInSpin() { __builtin_ia32_pause(); }

}  // namespace lm
