// exit() in the midst of everything: exit_test lm0.so MODEL.gguf FLOAT_MODEL.gguf [processes]
//
// Each process starts threads that generate, stream, embed, run jobs, load, write a memo, and
// report, and calls exit() from the main thread at a random moment. It must end by itself, with the
// status that it gave. Every second process runs a model with float weights, whose products are
// oneDNN's.
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kStatus = 7;              // what a child gives to exit()
constexpr int kLongestMicros = 250000;  // until it does
constexpr auto kPatience = std::chrono::seconds(60);

const char* lm0 = nullptr;

int64_t NowMicros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch())
      .count();
}

// A connection with the extension loaded.
class Database {
 public:
  explicit Database(const std::string& path) {
    sqlite3_open(path.c_str(), &db_);
    sqlite3_busy_timeout(db_, 1000);
    sqlite3_enable_load_extension(db_, 1);
    if (sqlite3_load_extension(db_, lm0, nullptr, nullptr) != SQLITE_OK) {
      std::fprintf(stderr, "%s\n", sqlite3_errmsg(db_));
    }
  }
  ~Database() { sqlite3_close(db_); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Whether all of it ran, with at least one row.
  bool Run(const std::string& sql) {
    int rows = 0;
    const auto count = [](void* counter, int, char**, char**) {
      ++*static_cast<int*>(counter);
      return 0;
    };
    char* message = nullptr;
    const int code = sqlite3_exec(db_, sql.c_str(), count, &rows, &message);
    if (code != SQLITE_OK && complains_) std::fprintf(stderr, "%s: %s\n", sql.c_str(), message);
    sqlite3_free(message);
    return code == SQLITE_OK && rows > 0;
  }

  void set_complains(bool complains) { complains_ = complains; }

 private:
  sqlite3* db_ = nullptr;
  bool complains_ = false;
};

// What a thread does again and again, the n-th time.
struct Role {
  const char* name;
  bool on_disk;     // has a database file of its own
  bool reconnects;  // a new connection each time
  std::string (*sql)(int n, const std::string& folder);
};

const Role kRoles[] = {
    {"generate", false, false,
     [](int n, const std::string&) {
       // Long enough for prefill in tiles of 128 tokens.
       return "SELECT generate(printf('%.*c', 200, 'a') || " + std::to_string(n) +
              R"(, NULL, '{"max_tokens":20}'))";
     }},
    {"batch", false, false,
     [](int n, const std::string&) {
       return R"(SELECT value FROM lm_each(json_array('a','b','c','d','e',)" + std::to_string(n) +
              R"(), NULL, '{"max_tokens":20}'))";
     }},
    {"stream", false, false,
     [](int n, const std::string&) {
       return "SELECT piece FROM lm_stream('go on' || " + std::to_string(n) +
              R"(, NULL, '{"max_tokens":20}'))";
     }},
    {"embed", false, false,
     [](int n, const std::string&) {
       return "SELECT lm_embed('text ' || " + std::to_string(n) + "), lm_classify('t' || " +
              std::to_string(n) + R"(, '["yes","no"]'))";
     }},
    {"job", true, false,
     [](int n, const std::string&) {
       const std::string name = "'j" + std::to_string(n) + "'";
       return "INSERT INTO lm_jobs(name, query, options) VALUES (" + name +
              R"(, 'WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 5) )"
              R"(SELECT x, ''row '' || x FROM c', '{"max_tokens":5}'); SELECT * FROM lm_run()" +
              name + ")";
     }},
    {"load", false, true,
     [](int n, const std::string&) {
       return std::string(
                  "INSERT OR REPLACE INTO temp.lm_models(name, path, options) VALUES ('m', '") +
              std::getenv("LM_MODEL") + "', '{\"kv_bytes\":" + std::to_string(4000000 + 4096 * n) +
              R"(}'); SELECT generate('a', NULL, '{"max_tokens":2,"model":"m"}'))";
     }},
    {"memo", false, false,
     [](int n, const std::string& folder) {
       return "INSERT OR REPLACE INTO temp.lm_settings VALUES ('memo', '" + folder +
              "/memo.db'); SELECT generate('m" + std::to_string(n % 50) +
              R"(', NULL, '{"max_tokens":5}'))";
     }},
    {"report", false, false,
     [](int, const std::string&) {
       return std::string(
           "SELECT lm_debug(); SELECT * FROM lm_devices; SELECT * FROM lm_stats;"
           "SELECT * FROM lm_requests; SELECT * FROM lm_cache");
     }},
};

class Worker {
 public:
  Worker(const Role& role, int number, const std::string& folder)
      : role_(role), number_(number), folder_(folder) {}

  bool Once(bool complains) {
    if (db_ == nullptr || role_.reconnects) {
      db_.reset();
      const std::string path = folder_ + "/" + role_.name + std::to_string(number_) + ".db";
      db_ = std::make_unique<Database>(role_.on_disk ? path : ":memory:");
    }
    db_->set_complains(complains);
    return db_->Run(role_.sql(1000 * number_ + turn_++, folder_));
  }

 private:
  const Role& role_;
  const int number_;
  const std::string folder_;
  std::unique_ptr<Database> db_;
  int turn_ = 0;
};

// Does everything once: a test in which nothing ran could not fail.
bool Rehearse(const std::string& folder) {
  bool all = true;
  for (const Role& role : kRoles) all &= Worker(role, 0, folder).Once(/*complains=*/true);
  return all;
}

// Writes the time of its exit() to `report`.
[[noreturn]] void ExitInTheMidst(unsigned seed, const std::string& folder, int report) {
  std::mt19937 random(seed);
  // The first float product of a process has oneDNN set itself up, for some ten milliseconds; an
  // exit() then would run handlers that it registers there before any of ours.
  Worker(kRoles[0], 0, folder).Once(/*complains=*/false);
  for (int i = 1; i <= 6; ++i) {
    const Role& role = kRoles[random() % std::size(kRoles)];
    std::thread([&role, i, folder] {
      Worker worker(role, i, folder);
      for (;;) worker.Once(/*complains=*/false);
    }).detach();
  }
  std::this_thread::sleep_for(std::chrono::microseconds(random() % kLongestMicros));
  const int64_t now = NowMicros();
  if (write(report, &now, sizeof now) != sizeof now) _exit(1);
  std::exit(kStatus);
}

// A forked child that ends by `body`, in a folder of its own; its status, or -1 where it hung.
template <typename Body>
int StatusOfChild(const Body& body) {
  std::string folder = std::filesystem::temp_directory_path() / "exit_test_XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return -1;
  const pid_t child = fork();
  if (child == 0) body(folder);
  int status = 0;
  const auto give_up = Clock::now() + kPatience;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (Clock::now() > give_up) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      status = -1;
      break;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  return status;
}

std::string Describe(int status) {
  if (status == -1) return "hung";
  if (WIFSIGNALED(status)) return std::string("died of ") + strsignal(WTERMSIG(status));
  return "status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: exit_test lm0.so MODEL.gguf FLOAT_MODEL.gguf [processes]\n");
    return 2;
  }
  lm0 = argv[1];
  const int processes = argc > 4 ? std::atoi(argv[4]) : 50;
  int failures = 0;
  std::vector<int64_t> micros;  // from exit() to the end
  for (int i = 0; i < processes + 2; ++i) {
    std::fflush(stdout);  // or the child would write it again
    setenv("LM_MODEL", argv[2 + i % 2], 1);
    int report[2];
    if (pipe(report) != 0) return 2;
    const bool rehearsal = i < 2;
    const int status = StatusOfChild([&](const std::string& folder) {
      if (rehearsal) std::_Exit(Rehearse(folder) ? 0 : 1);
      ExitInTheMidst(static_cast<unsigned>(i), folder, report[1]);
    });
    const int64_t end = NowMicros();
    int64_t begin = 0;
    close(report[1]);
    if (read(report[0], &begin, sizeof begin) == sizeof begin) micros.push_back(end - begin);
    close(report[0]);
    const bool ended = status != -1 && WIFEXITED(status);
    if (ended && WEXITSTATUS(status) == (rehearsal ? 0 : kStatus)) continue;
    ++failures;
    std::printf("process %d of %s: %s\n", i, std::getenv("LM_MODEL"), Describe(status).c_str());
  }
  std::sort(micros.begin(), micros.end());
  if (!micros.empty()) {
    std::printf("%d processes, %d failures; exit() takes a median of %.1f ms, at most %.1f ms\n",
                processes, failures, micros[micros.size() / 2] / 1e3, micros.back() / 1e3);
  }
  return failures == 0 ? 0 : 1;
}
