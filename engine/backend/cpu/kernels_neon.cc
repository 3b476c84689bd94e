// The kernels, compiled for ARM64 as it began (ARMv8.0).
#include "engine/backend/cpu/neon_products.h"
#include "engine/backend/cpu/simd_neon.h"

#include "engine/backend/cpu/dot_groups.h"

#include "engine/backend/cpu/isa_kernels.h"

namespace lm {

const CpuKernels kNeonKernels = kIsaKernels;

}  // namespace lm
