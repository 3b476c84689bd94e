// What this machine can do at most, measured: the denominators of every "share of the ceiling".
//
//   const MachineCeilings ceilings = MeasureCeilings(threads);             // a second and a half
//   if (auto known = CeilingsOfThisProcess(threads, poll)) ...             // once; a fifth of one
#ifndef LM_ENGINE_BACKEND_MACHINE_CEILINGS_H_
#define LM_ENGINE_BACKEND_MACHINE_CEILINGS_H_

#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "engine/base/cpu_features.h"

namespace lm {

// 0: not known (there was no memory for it, or no such loop is written for this processor).
struct MachineCeilings {
  double read_bytes_per_second = 0;  // streaming reads from memory, all threads
  double fp32_flops_per_second = 0;  // fused multiply-adds count two
  double int8_ops_per_second = 0;    // u8 x s8 products into int32, multiply and add count two
};

// `each` (and at least three short runs) for each figure, whose best run counts. Between runs, some
// ten milliseconds apart, `give_up` may end it: then what was not measured is 0.
MachineCeilings MeasureCeilings(
    int threads, Isa isa = BestIsa(), absl::Duration each = absl::Milliseconds(500),
    absl::FunctionRef<bool()> give_up = [] { return false; });

// Measured briefly at the first call with this number of threads and remembered; nullopt where
// `give_up` ended it. Who calls meanwhile waits. A machine that is busy gives lower figures.
// Thread-safe.
std::optional<MachineCeilings> CeilingsOfThisProcess(int threads,
                                                     absl::FunctionRef<bool()> give_up);

// Whether CeilingsOfThisProcess measures just now: what can wait, waits.
bool MeasuresCeilings();

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_MACHINE_CEILINGS_H_
