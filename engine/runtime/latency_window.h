// Percentiles over the last few thousand observations.
#ifndef LM_ENGINE_RUNTIME_LATENCY_WINDOW_H_
#define LM_ENGINE_RUNTIME_LATENCY_WINDOW_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "engine/runtime/engine_stats.h"

namespace lm {

// Not thread-safe.
class LatencyWindow {
 public:
  static constexpr size_t kObservations = 4096;

  void Add(absl::Duration latency);
  // Percentile q is the smallest observation that at least q of the window does not exceed; count
  // is of all observations ever.
  LatencySummary Summary() const;

 private:
  std::vector<absl::Duration> ring_;
  int64_t count_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_LATENCY_WINDOW_H_
