// What this machine can do at most, measured: the denominators of every "share of the ceiling".
#ifndef LM_TESTS_BENCHMARKS_MACHINE_CEILINGS_H_
#define LM_TESTS_BENCHMARKS_MACHINE_CEILINGS_H_

#include "engine/base/cpu_features.h"

namespace lm {

struct MachineCeilings {
  double read_bytes_per_second;   // streaming reads from memory, all threads
  double fp32_flops_per_second;   // fused multiply-adds count two
  double int8_ops_per_second;     // u8 x s8 products into int32, multiply and add count two
};

// About half a second for each figure; best of several short runs, `threads` threads.
MachineCeilings MeasureCeilings(int threads, Isa isa = BestIsa());

}  // namespace lm

#endif  // LM_TESTS_BENCHMARKS_MACHINE_CEILINGS_H_
