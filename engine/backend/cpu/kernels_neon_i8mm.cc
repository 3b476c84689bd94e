// The kernels, compiled for ARM64 with products of 2 x 8 by 8 x 2 bytes.
#include "engine/backend/cpu/simd_neon.h"

#include "engine/backend/cpu/dot_groups_i8mm.h"

#include "engine/backend/cpu/isa_kernels.h"

namespace lm {

const CpuKernels kNeonI8mmKernels = kIsaKernels;

}  // namespace lm
