#include "engine/base/exit_guard.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "absl/time/clock.h"

namespace lm {
namespace {

// Each death test runs in a process of its own.
class ExitGuardTest : public testing::Test {
 protected:
  ExitGuardTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

std::atomic<bool> told{false};
std::atomic<int> held{0};

// Holds a guard until exit() asks for it, and a little longer.
void HoldUntilTold() {
  ExitGuard guard([](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; }, &told);
  ++held;
  while (!told) absl::SleepFor(absl::Milliseconds(1));
  absl::SleepFor(absl::Milliseconds(20));
  --held;
}

void AwaitHeld(int count) {
  while (held < count) absl::SleepFor(absl::Milliseconds(1));
}

// What a library does at its first use.
void RegisterHandler() {
  std::atexit([] {
    if (held != 0) _exit(3);  // it would destroy what is in use
  });
}

TEST_F(ExitGuardTest, ExitAsksTheHoldersAndWaits) {
  EXPECT_EXIT(
      {
        RegisterHandler();
        for (int i = 0; i < 4; ++i) std::thread(&HoldUntilTold).detach();
        AwaitHeld(4);
        std::exit(held == 4 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(ExitGuardTest, StaysAheadOfHandlersThatCameLater) {
  EXPECT_EXIT(
      {
        std::thread([] {
          ExitGuard first_use;
          RegisterHandler();
          ExitGuard::StayAheadOf(ExitGuard::Library::kOneDnn);
          HoldUntilTold();
        }).detach();
        AwaitHeld(1);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(ExitGuardTest, NothingBeginsAfterExitHas) {
  EXPECT_EXIT(
      {
        std::atexit([] {
          ExitGuard late;
          if (late.allowed() || !ExitGuard::exit_begun()) _exit(4);
        });
        { ExitGuard early; }  // registers our handler, which so comes first
        const bool allowed = ExitGuard().allowed() && !ExitGuard::exit_begun();
        std::exit(allowed ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(ExitGuardTest, ASignalsHandlerMayExitInTheMidstOfAGuard) {
  EXPECT_EXIT(
      {
        std::thread(&HoldUntilTold).detach();
        AwaitHeld(1);
        const ExitGuard guard;
        std::signal(SIGTERM, [](int) { std::exit(held == 1 ? 5 : 1); });
        std::raise(SIGTERM);
      },
      testing::ExitedWithCode(5), "");
}

TEST_F(ExitGuardTest, AForkedChildWaitsForNobody) {
  EXPECT_EXIT(
      {
        std::thread(&HoldUntilTold).detach();
        AwaitHeld(1);
        const pid_t child = fork();
        if (child == 0) {
          alarm(20);
          const bool allowed = ExitGuard().allowed();
          std::exit(allowed ? 5 : 6);
        }
        int status = 0;
        waitpid(child, &status, 0);
        std::exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
      },
      testing::ExitedWithCode(5), "");
}

}  // namespace
}  // namespace lm
