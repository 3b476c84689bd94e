#include "engine/base/processor.h"

namespace lm {

std::vector<Isa> DetectIsas() { return {Isa::kPortable}; }

void PauseInSpin() {}

}  // namespace lm
