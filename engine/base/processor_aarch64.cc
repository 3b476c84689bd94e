// processor.h for ARM64.
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include <cstdint>

#include "engine/base/digest_lanes.h"
#include "engine/base/processor.h"

namespace lm {

std::vector<Isa> DetectIsas() {
  std::vector<Isa> isas = {Isa::kPortable, Isa::kNeon};
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) == 0) return isas;
  isas.push_back(Isa::kNeonDotprod);
  if ((getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0) isas.push_back(Isa::kNeonI8mm);
  return isas;
}

// "yield" does nothing on most processors; an instruction barrier takes about as long as x86's
// pause.
void PauseInSpin() { asm volatile("isb"); }

bool RoundsByDefault() {
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return control == 0;
}

void MixDigestBlocks(uint64_t (&lanes)[4], const char* blocks, size_t count) {
  MixBlocks(lanes, blocks, count);
}

}  // namespace lm
