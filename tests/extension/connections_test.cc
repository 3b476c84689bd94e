// Eight connections on eight threads, all generating at once.
//
//   connections_test                                  # answers, threads, idle time
//   connections_test --throughput MODEL.gguf          # rows/s of 8 connections beside those of one
//
// The first is for ThreadSanitizer too; Abseil must then have been built with it, since the
// sanitizer cannot see into a library's locks.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "tests/extension/sql_connection.h"
#include "tests/testdata.h"

namespace {

constexpr int kConnections = 8;
constexpr int kPoolThreads = 2;
constexpr char kSystem[] = "Name the section this package belongs to. Answer with one word.";

using Texts = std::vector<std::string>;

class Connection : public lm::SqlConnection {
 public:
  // `salt`: whose prefix cache.
  Connection(const std::string& model, const std::string& salt) : SqlConnection(":memory:") {
    Set("model", model);
    Set("salt", salt);
    Rows("INSERT OR REPLACE INTO temp.lm_settings VALUES ('threads', 2), ('max_tokens', 12)");
  }

  Texts Together(const Texts& prompts) {
    return Column("SELECT coalesce(error, value) FROM lm_each(?, ?) ORDER BY key",
                  {nlohmann::json(prompts).dump(), kSystem});
  }
  std::string Alone(const std::string& prompt) {
    return Value("SELECT generate(?, ?)", {prompt, kSystem});
  }
};

Texts Prompts(int count) {
  const char* kinds[] = {"library", "game", "editor", "driver", "compiler"};
  Texts prompts;
  for (int i = 0; i < count; ++i) {
    prompts.push_back("Package: tool" + std::to_string(i * 7919) + "\nA " + kinds[i % 5] +
                      " for people who like " + std::string(1 + i % 11, 'a' + i % 26) + ".");
  }
  return prompts;
}

// Answers of kConnections connections, each on a thread of its own and with its part of the rows.
// They begin together when all have their engine, and after `when_ready`.
Texts OnEightThreads(
    const std::string& model, const std::string& salt, const Texts& prompts, bool together,
    const std::function<void()>& when_ready = [] {}) {
  Texts answers(prompts.size());
  const size_t part = prompts.size() / kConnections;
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  for (int c = 0; c < kConnections; ++c) {
    threads.emplace_back([&, c] {
      Connection connection(model, salt);
      connection.Alone("A game.");
      if (++ready == kConnections) {
        when_ready();
        go = true;
      }
      while (!go) std::this_thread::yield();
      const auto begin = prompts.begin() + c * part;
      Texts mine(begin, begin + part);
      if (together) {
        mine = connection.Together(mine);
      } else {
        for (std::string& text : mine) text = connection.Alone(text);
      }
      std::copy(mine.begin(), mine.end(), answers.begin() + c * part);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return answers;
}

int CountThreads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

// The same once it has not changed for a while: threads that end take their time on a busy machine.
int SettledThreads() {
  int count = CountThreads();
  for (int same = 0; same < 20; ++same) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const int now = CountThreads();
    if (now != count) same = -1;
    count = now;
  }
  return count;
}

double CpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class Connections : public testing::TestWithParam<const char*> {
 protected:
  const std::string model_ = std::string(LM_TESTDATA "/models/") + GetParam() + ".gguf";
};

TEST_P(Connections, OnThreadsOfTheirOwnSayWhatOneSays) {
  const Texts prompts = Prompts(64);
  const Texts expected = Connection(model_, "one").Together(prompts);
  ASSERT_EQ(expected.size(), prompts.size());
  EXPECT_EQ(OnEightThreads(model_, "shared", prompts, true), expected);
  EXPECT_EQ(OnEightThreads(model_, "shared", prompts, false), expected);
}

// Nothing forks threads behind SQLite's back: there are those of the host, the engine's own and
// its pool's, also where a library with an OpenMP runtime does the products.
TEST_P(Connections, HaveTheirEnginesThreadsAndNoOthers) {
  std::thread([] {}).join();  // ThreadSanitizer begins a thread of its own with the first
  const int before = SettledThreads();
  std::atomic<bool> done{false};
  std::atomic<int> phase{0}, most{0}, num_counts{0};  // phase: odd while threads are counted
  std::thread watcher([&] {
    while (!done) {
      const int counted_in = phase;
      const int threads = CountThreads();
      if (counted_in % 2 == 1 && phase == counted_in) {
        most = std::max(most.load(), threads);
        ++num_counts;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  auto stop = [&] {
    done = true;
    if (watcher.joinable()) watcher.join();
  };
  const std::shared_ptr<void> stops(nullptr,
                                    [&stop](void*) { stop(); });  // also where something throws
  {
    Connection keeper(model_, "one");
    keeper.Alone("A game.");
    // A connection's first call loads on a thread that ends with it; count after those. On a busy
    // machine it may take some rounds, of other rows each, until the watcher has come to its turn.
    for (int round = 0; round < 100 && (round == 0 || num_counts < 5 || most <= kConnections);
         ++round) {
      Texts prompts = Prompts(64);
      for (std::string& prompt : prompts) prompt += " Round " + std::to_string(round) + ".";
      OnEightThreads(model_, "shared", prompts, true, [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        ++phase;
      });
      ++phase;
    }
    stop();
    EXPECT_GT(most, kConnections);
    EXPECT_LE(most, before + 1 + kConnections + 1 + (kPoolThreads - 1));
    EXPECT_EQ(SettledThreads(), before + 1 + (kPoolThreads - 1));

    // And when there is nothing to do they sleep.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const double cpu = CpuSeconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    EXPECT_LT(CpuSeconds() - cpu, 0.04);
  }
  EXPECT_EQ(SettledThreads(), before);
}

INSTANTIATE_TEST_SUITE_P(Types, Connections,
                         testing::Values("llama-q8_0", "llama-rope-factors-f16",
                                         "llama-spm-untied-f32"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Rows a second of one connection and of eight over the same rows, in turns.
int MeasureThroughput(const std::string& model) {
  constexpr int kRounds = 5;
  const Texts prompts = Prompts(64);
  std::vector<double> one, eight;
  Connection keeper(model, "keeper");
  keeper.Alone(prompts[0]);
  for (int round = 0; round < kRounds; ++round) {
    const std::string salt = "round " + std::to_string(round);
    auto seconds = [begin = std::chrono::steady_clock::now()]() mutable {
      const auto end = std::chrono::steady_clock::now();
      return std::chrono::duration<double>(end - std::exchange(begin, end)).count();
    };
    Connection alone(model, salt + " one");
    alone.Alone("A game.");
    seconds();
    alone.Together(prompts);
    one.push_back(static_cast<double>(prompts.size()) / seconds());
    OnEightThreads(model, salt + " eight", prompts, true, [&] { seconds(); });
    eight.push_back(static_cast<double>(prompts.size()) / seconds());
  }
  std::sort(one.begin(), one.end());
  std::sort(eight.begin(), eight.end());
  std::printf("1 connection %.1f rows/s, %d connections %.1f rows/s: %.2f times\n",
              one[kRounds / 2], kConnections, eight[kRounds / 2],
              eight[kRounds / 2] / one[kRounds / 2]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--throughput") == 0) return MeasureThroughput(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
