#include "engine/runtime/request.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "absl/time/time.h"

namespace lm {
namespace {

// How often this thread has given its processor away to wait for something.
long TimesAsleep() {
  rusage usage = {};
  EXPECT_EQ(getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_nvcsw;
}

// As look-ahead does several times a row, beside threads that have work for every processor.
TEST(RequestTest, WhoOnlyLooksWhetherItIsDoneDoesNotSleep) {
  Request request(RequestSpec{});
  const long before = TimesAsleep();
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(request.WaitFor(absl::ZeroDuration()));
  EXPECT_LT(TimesAsleep() - before, 100);
  request.Finish({});
  EXPECT_TRUE(request.WaitFor(absl::ZeroDuration()));
}

}  // namespace
}  // namespace lm
