// A clock that a test sets, for those who do not go by one that nobody sets (monotonic_time.h):
// linked with it, or preloaded, settable_clock.cc stands in for clock_gettime() and gettimeofday().
#ifndef LM_TESTS_SETTABLE_CLOCK_H_
#define LM_TESTS_SETTABLE_CLOCK_H_

// By so many seconds it is ahead of the machine's from now on. Whoever waits in the kernel until a
// moment of it waits as much longer: as if it was set back meanwhile.
extern "C" __attribute__((visibility("default"))) void SetClock(long ahead);

#endif  // LM_TESTS_SETTABLE_CLOCK_H_
