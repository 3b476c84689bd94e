// The kernels where the target is neither x86 nor ARM64: the portable ones.
#include "engine/backend/cpu/kernel_tables.h"

namespace lm {

const CpuKernels& GetCpuKernels(Isa /*isa*/) { return kPortableKernels; }

}  // namespace lm
