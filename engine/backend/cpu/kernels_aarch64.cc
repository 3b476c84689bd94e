// The kernels of each instruction set, where the target is ARM64.
#include "engine/backend/cpu/kernel_tables.h"

namespace lm {

const CpuKernels& GetCpuKernels(Isa isa) {
  switch (isa) {
    case Isa::kNeonI8mm:
      return kNeonI8mmKernels;
    case Isa::kNeonDotprod:
      return kNeonDotprodKernels;
    case Isa::kNeon:
      return kNeonKernels;
    default:
      return kPortableKernels;
  }
}

}  // namespace lm
