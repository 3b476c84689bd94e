// The tables that the kernels_*.cc files define. CMake compiles those that the target processor can
// have; GetCpuKernels (kernels_x86.cc, kernels_aarch64.cc or kernels_other.cc) picks among them.
#ifndef LM_ENGINE_BACKEND_CPU_KERNEL_TABLES_H_
#define LM_ENGINE_BACKEND_CPU_KERNEL_TABLES_H_

#include "engine/backend/cpu/cpu_kernels.h"

namespace lm {

extern const CpuKernels kPortableKernels;
extern const CpuKernels kAvx2Kernels;
extern const CpuKernels kAvxVnniKernels;
extern const CpuKernels kAvx512Kernels;
extern const CpuKernels kNeonKernels;
extern const CpuKernels kNeonDotprodKernels;
extern const CpuKernels kNeonI8mmKernels;

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_KERNEL_TABLES_H_
