// The kernels, compiled for AVX2 + FMA + F16C.
#include "engine/backend/cpu/simd_avx2.h"

#include "engine/backend/cpu/dot_groups_avx2.h"

#include "engine/backend/cpu/isa_kernels.h"

namespace lm {

const CpuKernels kAvx2Kernels = kIsaKernels;

}  // namespace lm
