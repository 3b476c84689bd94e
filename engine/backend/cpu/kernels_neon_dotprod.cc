// The kernels, compiled for ARM64 with dot products of four bytes.
#include "engine/backend/cpu/neon_dotprod_products.h"
#include "engine/backend/cpu/simd_neon.h"

#include "engine/backend/cpu/dot_groups.h"

#include "engine/backend/cpu/isa_kernels.h"

namespace lm {

const CpuKernels kNeonDotprodKernels = kIsaKernels;

}  // namespace lm
