#include "engine/runtime/generator_registry.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <new>
#include <thread>

#include "tests/engine/runtime/scripted_model.h"

namespace {

pid_t told = 0;  // what getpid() says; 0: the truth

}  // namespace

// In a namespace of its own a child may have its parent's number, which takes privileges.
extern "C" pid_t getpid() noexcept {
  return told != 0 ? told : static_cast<pid_t>(syscall(SYS_getpid));
}

namespace lm {
namespace {

class GeneratorRegistryTest : public testing::Test {
 protected:
  GeneratorRegistryTest() {
    Write(path_, "model");
    Write(other_path_, "another model");
  }
  ~GeneratorRegistryTest() override {
    for (const std::string& path : {path_, other_path_, path_ + ".link"}) unlink(path.c_str());
  }
  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  static std::string Path(const std::string& name) {
    return testing::TempDir() + "/generator_registry_test." + std::to_string(getpid()) + "." + name;
  }

  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  std::atomic<int> loads_{0};
  absl::Duration load_time_;
  absl::Status load_status_;
  bool no_memory_ = false;
  const std::string path_ = Path("a"), other_path_ = Path("b");
  GeneratorRegistry registry_{
      [this](const std::string&, const ModelOptions&,
             const std::atomic<bool>& cancel) -> absl::StatusOr<std::unique_ptr<Model>> {
        const absl::Time end = absl::Now() + load_time_;
        ++loads_;  // who sees it may change load_time_
        while (absl::Now() < end && !cancel) absl::SleepFor(absl::Milliseconds(1));
        if (cancel) return absl::CancelledError("told to stop");
        if (no_memory_) throw std::bad_alloc();
        if (!load_status_.ok()) return load_status_;
        return MakeScriptedModel(script_);
      }};

  absl::StatusOr<std::shared_ptr<Generator>> Get(const std::string& path,
                                                 const ModelOptions& options = {}) {
    std::atomic<bool> cancel{false};
    return registry_.Get(path, options, cancel);
  }
};

TEST_F(GeneratorRegistryTest, MemoryThatRunsOutWhileLoadingLeavesNobodyWaiting) {
  no_memory_ = true;
  load_time_ = absl::Milliseconds(20);
  std::thread other([this] { EXPECT_FALSE(Get(path_).ok()); });
  EXPECT_EQ(Get(path_).status().message(), "out of memory");
  other.join();
  no_memory_ = false;
  EXPECT_TRUE(Get(path_).ok());
}

TEST_F(GeneratorRegistryTest, OneEngineForAFileWhateverItsName) {
  auto a = Get(path_).value();
  ASSERT_EQ(symlink(path_.c_str(), (path_ + ".link").c_str()), 0);
  EXPECT_EQ(Get(path_ + ".link").value(), a);
  EXPECT_NE(Get(other_path_).value(), a);
  EXPECT_EQ(registry_.Running().size(), 1u);  // the other one had no user
  EXPECT_NE(Get(path_, {.threads = 3}).value(), a);
  EXPECT_EQ(loads_, 3);
}

TEST_F(GeneratorRegistryTest, ConcurrentFirstCallsLoadOnce) {
  load_time_ = absl::Milliseconds(50);
  std::vector<std::shared_ptr<Generator>> generators(16);
  std::vector<std::thread> threads;
  for (auto& generator : generators) {
    threads.emplace_back([&] { generator = Get(path_).value(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& generator : generators) EXPECT_EQ(generator, generators[0]);
  EXPECT_EQ(loads_, 1);
}

TEST_F(GeneratorRegistryTest, AFailedLoadIsToldToAllAndTriedAgainLater) {
  load_time_ = absl::Milliseconds(50);
  load_status_ = absl::DataLossError("broken");
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { failures += Get(path_).status() == load_status_; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 4);
  load_status_ = absl::OkStatus();
  EXPECT_TRUE(Get(path_).ok());
}

TEST_F(GeneratorRegistryTest, TheLastUserStopsTheEngine) {
  std::weak_ptr<Generator> generator = Get(path_).value();
  EXPECT_TRUE(generator.expired());
  EXPECT_TRUE(registry_.Running().empty());
  auto again = Get(path_).value();
  EXPECT_EQ(loads_, 2);
  EXPECT_TRUE(Generate(*again->engine(), {.prompt = {1}}).status.ok());
}

TEST_F(GeneratorRegistryTest, AReplacedFileIsAnotherModel) {
  auto old_generator = Get(path_).value();
  unlink(path_.c_str());
  Write(path_, "a newer model");
  auto new_generator = Get(path_).value();
  EXPECT_NE(old_generator, new_generator);
  EXPECT_EQ(registry_.Running().size(), 2u);
  EXPECT_TRUE(Generate(*old_generator->engine(), {.prompt = {1}}).status.ok());
}

TEST_F(GeneratorRegistryTest, ASplitModelIsAllItsParts) {
  const std::string first = Path("s-00001-of-00002.gguf"), second = Path("s-00002-of-00002.gguf");
  Write(first, "part 1");
  Write(second, "part 2");
  auto old_generator = Get(first).value();
  EXPECT_EQ(Get(second).value(), old_generator);
  unlink(second.c_str());
  Write(second, "another part 2");
  auto new_generator = Get(first).value();
  EXPECT_NE(new_generator, old_generator);
  EXPECT_EQ(loads_, 2);
  // Changed under the loading.
  load_time_ = absl::Milliseconds(200);
  absl::Status changed;
  std::thread loading([&] { changed = Get(first, {.threads = 3}).status(); });
  while (loads_ < 3) absl::SleepFor(absl::Milliseconds(1));
  Write(second, "a third one");
  loading.join();
  EXPECT_TRUE(absl::IsFailedPrecondition(changed)) << changed;
  unlink(first.c_str());
  unlink(second.c_str());
}

TEST_F(GeneratorRegistryTest, AFileThatIsNotThereIsNamed) {
  const absl::Status status = Get(path_ + ".none").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find(path_ + ".none"), absl::string_view::npos);
  EXPECT_FALSE(GetGenerator(path_ + ".none", {}).ok());
}

TEST_F(GeneratorRegistryTest, OneWhoIsCancelledLeavesTheLoadingToTheNext) {
  load_time_ = absl::InfiniteDuration();
  std::atomic<bool> cancel{false};
  absl::Status first, second;
  std::thread impatient([&] { first = registry_.Get(path_, {}, cancel).status(); });
  while (loads_ == 0) absl::SleepFor(absl::Milliseconds(1));
  std::atomic<bool> cancel_second{false};
  std::thread patient([&] { second = registry_.Get(path_, {}, cancel_second).status(); });
  absl::SleepFor(absl::Milliseconds(20));
  load_time_ = absl::ZeroDuration();  // of the next one
  cancel = true;
  impatient.join();
  patient.join();
  EXPECT_TRUE(absl::IsCancelled(first)) << first;
  EXPECT_TRUE(second.ok()) << second;
  EXPECT_EQ(loads_, 2);
}

// Runs `body` in a forked child; it must end within 20 s. Its exit code.
template <typename Body>
int InChild(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    body();
    _exit(99);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_F(GeneratorRegistryTest, AForkedChildGetsAnErrorAndNeverHangs) {
  EXPECT_FALSE(GetGenerator(path_, {}).ok());  // the process has had the registry
  auto generator = Get(path_).value();
  std::atomic<bool> stop{false};
  std::thread client([&] {
    while (!stop) Generate(*generator->engine(), {.prompt = {1, 2}, .options = {.max_tokens = 20}});
  });
  const pid_t own = getpid();
  for (int i = 0; i < 50; ++i) {
    told = i % 2 == 0 ? 0 : own;
    const int code = InChild([&] {
      const absl::Status get = GetGenerator(path_, {}).status();
      const absl::Status submit = generator->Submit({.prompt = {1}}).status();
      const bool right =
          get.code() == absl::StatusCode::kFailedPrecondition &&
          submit.code() == absl::StatusCode::kFailedPrecondition &&
          get.message().find("open the database after fork") != absl::string_view::npos &&
          RunningGenerators().empty() && generator->engine()->Stats().kv_blocks_total == 0;
      generator.reset();  // must not wait for a thread that is not there
      _exit(right ? 0 : 1);
    });
    EXPECT_EQ(code, 0) << i;
  }
  told = 0;
  stop = true;
  client.join();
  EXPECT_TRUE(Generate(*generator->engine(), {.prompt = {1}}).status.ok());
}

// exit() in the middle of an answer, engines held by statics and by other threads. The death test
// runs in a process of its own.
TEST(EngineExitTest, ExitWhileGeneratingIsClean) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const std::string path =
            testing::TempDir() + "/engine_exit_test." + std::to_string(getpid());
        std::ofstream(path) << "model";
        static GeneratorRegistry* registry = new GeneratorRegistry(
            [](const std::string&, const ModelOptions&,
               const std::atomic<bool>&) -> absl::StatusOr<std::unique_ptr<Model>> {
              return MakeScriptedModel(std::make_shared<Script>());
            });
        std::atomic<bool> cancel{false};
        static std::shared_ptr<Generator> generator = registry->Get(path, {}, cancel).value();
        unlink(path.c_str());
        for (int i = 0; i < 4; ++i) {
          std::thread([generator = generator, i] {
            for (;;) {
              auto request = generator->Submit({.prompt = {i}, .options = {.max_tokens = 500}});
              if (!request.ok()) return;
              (*request)->WaitFor(absl::InfiniteDuration());
            }
          }).detach();
        }
        absl::SleepFor(absl::Milliseconds(20));
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

// exit() while a model loads: the loading is told to stop.
TEST(EngineExitTest, ExitWhileLoadingIsQuick) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const absl::Time start = absl::Now();
  EXPECT_EXIT(
      {
        const std::string path =
            testing::TempDir() + "/engine_exit_test." + std::to_string(getpid());
        std::ofstream(path) << "model";
        static std::atomic<bool> loading{false};
        static GeneratorRegistry* registry = new GeneratorRegistry(
            [](const std::string&, const ModelOptions&,
               const std::atomic<bool>& cancel) -> absl::StatusOr<std::unique_ptr<Model>> {
              loading = true;
              while (!cancel) absl::SleepFor(absl::Milliseconds(1));
              return absl::CancelledError("told to stop");
            });
        std::thread([path] {
          std::atomic<bool> cancel{false};
          const absl::Status status = registry->Get(path, {}, cancel).status();
          if (absl::IsFailedPrecondition(status)) absl::SleepFor(absl::Hours(1));
          _exit(1);  // it has another error
        }).detach();
        while (!loading) absl::SleepFor(absl::Milliseconds(1));
        unlink(path.c_str());
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
}

}  // namespace
}  // namespace lm
