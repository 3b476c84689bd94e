// The kernels, compiled for AVX2 + FMA + F16C.
#include "engine/backend/cpu/simd_avx2.h"

#include "engine/backend/cpu/dot_groups_avx2.h"

#include "engine/backend/cpu/isa_kernels.h"

#include "engine/backend/cpu/word_products_avx2.h"

namespace lm {

const CpuKernels kAvx2Kernels = WithWords(kIsaKernels);

}  // namespace lm
