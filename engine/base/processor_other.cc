#include "engine/base/processor.h"

namespace lm {

Isa DetectIsa() { return Isa::kPortable; }

void PauseInSpin() {}

}  // namespace lm
