// processor.h for processors that are neither x86 nor ARM64.
#include "engine/base/processor.h"

#include "engine/base/digest_lanes.h"

namespace lm {

std::vector<Isa> DetectIsas() { return {Isa::kPortable}; }

void PauseInSpin() {}

bool RoundsByDefault() { return false; }

void MixDigestBlocks(uint64_t (&lanes)[4], const char* blocks, size_t count) {
  MixBlocks(lanes, blocks, count);
}

}  // namespace lm
