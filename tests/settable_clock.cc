#include "tests/settable_clock.h"

#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace {

std::atomic<long> seconds{0};

}  // namespace

#pragma GCC visibility push(default)  // for the libraries, and for Python

void SetClock(long ahead) { seconds = ahead; }

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (clock == CLOCK_REALTIME) time->tv_sec += seconds;
  return result;
}

extern "C" int gettimeofday(timeval* time, void*) noexcept {
  timespec now;
  const int result = clock_gettime(CLOCK_REALTIME, &now);
  TIMESPEC_TO_TIMEVAL(time, &now);
  return result;
}

#pragma GCC visibility pop
