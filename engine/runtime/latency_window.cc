#include "engine/runtime/latency_window.h"

#include <algorithm>

namespace lm {

void LatencyWindow::Add(absl::Duration latency) {
  if (ring_.size() < kObservations) {
    ring_.push_back(latency);
  } else {
    ring_[count_ % kObservations] = latency;
  }
  ++count_;
}

LatencySummary LatencyWindow::Summary() const {
  LatencySummary summary;
  summary.count = count_;
  if (ring_.empty()) return summary;
  std::vector<absl::Duration> sorted = ring_;
  std::sort(sorted.begin(), sorted.end());
  auto percentile = [&sorted](size_t percent) {
    return sorted[(sorted.size() * percent + 99) / 100 - 1];
  };
  summary.p50 = percentile(50);
  summary.p95 = percentile(95);
  summary.p99 = percentile(99);
  return summary;
}

}  // namespace lm
