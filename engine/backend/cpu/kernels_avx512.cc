// The kernels, compiled for AVX-512 + VNNI.
#include "engine/backend/cpu/simd_avx512.h"

#include "engine/backend/cpu/dot_groups.h"

#include "engine/backend/cpu/isa_kernels.h"

namespace lm {

const CpuKernels kAvx512Kernels = kIsaKernels;

}  // namespace lm
