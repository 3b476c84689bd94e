// The kernels of each instruction set, where the target is x86.
#include "engine/backend/cpu/kernel_tables.h"

namespace lm {

const CpuKernels& GetCpuKernels(Isa isa) {
  switch (isa) {
    case Isa::kAvx512Vnni:
      return kAvx512Kernels;
    case Isa::kAvxVnni:
      return kAvxVnniKernels;
    case Isa::kAvx2:
      return kAvx2Kernels;
    default:
      return kPortableKernels;
  }
}

}  // namespace lm
