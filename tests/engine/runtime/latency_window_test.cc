#include "engine/runtime/latency_window.h"

#include <gtest/gtest.h>

namespace lm {
namespace {

TEST(LatencyWindowTest, PercentilesAreObservations) {
  LatencyWindow window;
  EXPECT_EQ(window.Summary().count, 0);
  EXPECT_EQ(window.Summary().p99, absl::ZeroDuration());
  for (int ms = 100; ms >= 1; --ms) window.Add(absl::Milliseconds(ms));
  const LatencySummary summary = window.Summary();
  EXPECT_EQ(summary.count, 100);
  EXPECT_EQ(summary.p50, absl::Milliseconds(50));
  EXPECT_EQ(summary.p95, absl::Milliseconds(95));
  EXPECT_EQ(summary.p99, absl::Milliseconds(99));
}

TEST(LatencyWindowTest, ForgetsTheOldest) {
  LatencyWindow window;
  for (int i = 0; i < 100; ++i) window.Add(absl::Hours(1));
  for (size_t i = 0; i < LatencyWindow::kObservations; ++i) window.Add(absl::Milliseconds(2));
  EXPECT_EQ(window.Summary().p99, absl::Milliseconds(2));
  EXPECT_EQ(window.Summary().count, static_cast<int64_t>(LatencyWindow::kObservations) + 100);
}

}  // namespace
}  // namespace lm
