// The kernels, compiled for plain C++.
#include "engine/backend/cpu/simd_portable.h"

#include "engine/backend/cpu/dot_groups.h"

#include "engine/backend/cpu/isa_kernels.h"

namespace lm {

const CpuKernels kPortableKernels = kIsaKernels;

}  // namespace lm
