#include "engine/base/this_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lm {
namespace {

// What `body` returns in a forked child.
template <typename Body>
bool InChild(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Their upper halves differ, whatever their processes' numbers are.
bool CountsAFork(uint64_t parent) { return ThisProcess() >> 32 == (parent >> 32) + 1; }

TEST(ThisProcessTest, AChildIsAnother) {
  const uint64_t own = ThisProcess();
  EXPECT_NE(own, 0u);
  EXPECT_TRUE(InChild([own] { return CountsAFork(own) && ThisProcess() == ThisProcess(); }));
  EXPECT_TRUE(InChild([own] {
    const uint64_t child = ThisProcess();
    return CountsAFork(own) && InChild([child] { return CountsAFork(child); });
  }));
  EXPECT_EQ(ThisProcess(), own);
}

}  // namespace
}  // namespace lm
