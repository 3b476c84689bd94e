#include "engine/backend/cpu/kernel_tables.h"

namespace lm {

const CpuKernels& GetCpuKernels(Isa /*isa*/) { return kPortableKernels; }

}  // namespace lm
