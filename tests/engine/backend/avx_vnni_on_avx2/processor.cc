#include "engine/base/processor.h"

#include "engine/base/digest_lanes.h"

namespace lm {

// A processor that has AVX-VNNI; where not even its stand-ins can run, nothing is tested.
std::vector<Isa> DetectIsas() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c")) {
    return {Isa::kPortable};
  }
  return {Isa::kPortable, Isa::kAvxVnni};
}

void PauseInSpin() { __builtin_ia32_pause(); }

bool RoundsByDefault() { return false; }

void MixDigestBlocks(uint64_t (&lanes)[4], const char* blocks, size_t count) {
  MixBlocks(lanes, blocks, count);
}

}  // namespace lm
