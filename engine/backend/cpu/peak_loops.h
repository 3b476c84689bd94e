// Loops that do nothing but keep a core's multipliers busy, as fast as it can: peak_loops_x86.cc
// and peak_loops_aarch64.cc have them, peak_loops_other.cc is for processors that nobody has
// written them for. CMake chooses.
#ifndef LM_ENGINE_BACKEND_CPU_PEAK_LOOPS_H_
#define LM_ENGINE_BACKEND_CPU_PEAK_LOOPS_H_

#include "engine/base/cpu_features.h"

namespace lm {

struct PeakLoop {
  void (*run)() = nullptr;  // a few milliseconds; null: there is none
  double operations = 0;    // of one run; a multiply and an add are two
};

struct PeakLoops {
  PeakLoop fp32;  // fused multiply-adds
  PeakLoop int8;  // u8 x s8 into int32
};

PeakLoops GetPeakLoops(Isa isa);

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_PEAK_LOOPS_H_
