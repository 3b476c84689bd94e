// The kernels, compiled for AVX2 + FMA + F16C with AVX-VNNI.
#include "engine/backend/cpu/avx_vnni_products.h"
#include "engine/backend/cpu/simd_avx2.h"

#include "engine/backend/cpu/dot_groups.h"

#include "engine/backend/cpu/isa_kernels.h"

namespace lm {

const CpuKernels kAvxVnniKernels = kIsaKernels;

}  // namespace lm
