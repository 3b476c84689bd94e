// SQL over every function and table: the statements of sql/reference, mutated. Each input is run by
// a connection of its own, is interrupted where it takes long, and succeeds or fails with a
// message; another connection, which stays, gives the same answers as at the beginning.
//
// LM_MODEL is the model, LM_SQL_PAGES the folder of the pages. Runs in a folder of its own; an
// input cannot name a file beyond it, since a slash becomes a plus.
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lm/sqlite.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/showable.h"

namespace lm {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(60);  // then it is interrupted
constexpr auto kMostAfterwards = std::chrono::seconds(5);  // and must have ended by then
constexpr int kInputsACheck = 100;
constexpr char kQuestion[] =
    "SELECT generate('What grows?', NULL, '{\"max_tokens\":4,\"temperature\":0.5,\"seed\":5}') || "
    "lm_classify('rain', '[\"wet\",\"dry\"]') || lm_token_count('one two')";
// What the machine can do is measured once a process, for longer than an input may take.
constexpr char kMeasure[] = "SELECT count(seconds) FROM lm_explain('SELECT generate(''What?'')')";

// Interrupts a connection that has been at work for kPatience.
class Watch {
 public:
  Watch() : thread_([this] { Main(); }) {}
  ~Watch() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  void Begin(sqlite3* db) {
    std::lock_guard lock(mutex_);
    db_ = db;
    begin_ = std::chrono::steady_clock::now();
    changed_.notify_one();
  }
  // The connection may be closed after it.
  void End() {
    std::lock_guard lock(mutex_);
    db_ = nullptr;
    Require(std::chrono::steady_clock::now() - begin_ < kPatience + kMostAfterwards,
            "an interrupt ends a statement");
  }

 private:
  void Main() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (db_ == nullptr) {
        changed_.wait(lock);
        continue;
      }
      // An input has several statements; each hears of it.
      if (std::chrono::steady_clock::now() - begin_ >= kPatience) sqlite3_interrupt(db_);
      changed_.wait_for(lock, std::chrono::milliseconds(5));
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  sqlite3* db_ = nullptr;
  std::chrono::steady_clock::time_point begin_;
  bool stopping_ = false;
  std::thread thread_;
};

sqlite3* Open() {
  sqlite3* db = nullptr;
  Require(sqlite3_open(":memory:", &db) == SQLITE_OK, "a database opens");
  char* message = nullptr;
  const int rc = sqlite3_lm_init(db, &message, nullptr);
  Require(rc == SQLITE_OK || rc == SQLITE_OK_LOAD_PERMANENTLY, "the extension starts");
  sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 4 << 20);
  sqlite3_limit(db, SQLITE_LIMIT_VDBE_OP, 20000);
  return db;
}

// What a value holds is read, as a host would.
void Touch(sqlite3_stmt* statement) {
  volatile char last = 0;
  for (int i = 0; i < sqlite3_column_count(statement); ++i) {
    const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement, i));
    const int size = sqlite3_column_bytes(statement, i);
    if (bytes != nullptr && size > 0) last = bytes[size - 1];
  }
  (void)last;
}

void RequireShowableError(sqlite3* db) {
  const std::string message = sqlite3_errmsg(db);
  Require(!message.empty(), "an error says something");
  // SQLite's own messages quote what they were given.
  Require(message.size() < 100'000, "a message of sane length");
}

void RunScript(sqlite3* db, const std::string& script) {
  const char* rest = script.c_str();
  for (int statements = 0; *rest != '\0' && statements < 16; ++statements) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(db, rest, -1, &statement, &rest) != SQLITE_OK) {
      return RequireShowableError(db);
    }
    int rc;
    while ((rc = sqlite3_step(statement)) == SQLITE_ROW) Touch(statement);
    if (rc != SQLITE_DONE) RequireShowableError(db);
    sqlite3_finalize(statement);
  }
}

// Of kQuestion or kMeasure.
std::string Answer(sqlite3* db, const char* question) {
  sqlite3_stmt* statement = nullptr;
  Require(sqlite3_prepare_v2(db, question, -1, &statement, nullptr) == SQLITE_OK, "it compiles");
  Require(sqlite3_step(statement) == SQLITE_ROW, "the other connection still has an answer");
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, 0));
  std::string answer = text == nullptr ? "" : text;
  sqlite3_finalize(statement);
  return answer;
}

// The connection that stays, and what it was told in the beginning.
struct Keeper {
  Keeper() {
    Require(std::getenv("LM_MODEL") != nullptr, "LM_MODEL");
    char folder[] = "/tmp/sql_fuzz_XXXXXX";
    Require(mkdtemp(folder) != nullptr && chdir(folder) == 0, "a folder of its own");
    path = folder;
    db = Open();
    answer = Answer(db, kQuestion);
    Require(Answer(db, kMeasure) == "1", "a statement's time is foreseen");
  }
  ~Keeper() {
    sqlite3_close(db);
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string path;
  sqlite3* db;
  std::string answer;
  int inputs = 0;
};

}  // namespace

// The pages' statements, a paragraph at a time.
std::vector<std::string> FuzzSeeds() {
  const char* folder = std::getenv("LM_SQL_PAGES");
  Require(folder != nullptr, "LM_SQL_PAGES");
  std::vector<std::filesystem::path> pages;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".sql") pages.push_back(entry.path());
  }
  std::sort(pages.begin(), pages.end());
  std::vector<std::string> seeds;
  for (const std::filesystem::path& page : pages) {
    std::ifstream file(page);
    std::string line, seed;
    while (std::getline(file, line)) {
      if (line.empty() && !seed.empty()) seeds.push_back(std::exchange(seed, ""));
      if (!line.empty() && line.rfind("--", 0) != 0) absl::StrAppend(&seed, line, "\n");
    }
    if (!seed.empty()) seeds.push_back(seed);
  }
  return seeds;
}

std::vector<std::string> FuzzWords() {
  std::vector<std::string> words = {
      "NULL",
      "''",
      "x'00ff'",
      "1e999",
      "-9223372036854775808",
      "(SELECT 1)",
      "zeroblob(70000)",
      "'[]'",
      "'{}'",
      "'{\"n\":3}'",
      "'{\"max_tokens\":0}'",
      "'{\"vote\":3}'",
      "'{\"lookahead\":1}'",
      "'{\"schema\":{}}'",
      "'{\"regex\":\"(a|b)*\"}'",
      "'{\"timeout_ms\":1}'",
      "'{\"stop\":[\"\"]}'",
      " UNION ALL ",
      " LIMIT 1",
      " WHERE key > 0 ",
      " ORDER BY 1 ",
      " JOIN ",
      " LEFT JOIN ",
      "json_array(",
      "json_group_array(",
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) ",
      "char(0)",
      "char(55357)",
      "CAST(x'ff' AS TEXT)",
      "lm_each(",
      "lm_query(",
      "count(*) OVER ()"};
  sqlite3* db = Open();
  sqlite3_stmt* names = nullptr;
  Require(
      sqlite3_prepare_v2(db,
                         "SELECT DISTINCT name || '(' FROM pragma_function_list WHERE name LIKE "
                         "'lm\\_%' ESCAPE '\\' OR name LIKE 'generate%'",
                         -1, &names, nullptr) == SQLITE_OK,
      "there is a list of functions");
  while (sqlite3_step(names) == SQLITE_ROW) {
    words.push_back(reinterpret_cast<const char*>(sqlite3_column_text(names, 0)));
  }
  sqlite3_finalize(names);
  sqlite3_close(db);
  Require(words.size() > 60, "there are our functions");
  return words;
}

}  // namespace lm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static lm::Keeper keeper;
  static lm::Watch watch;
  std::string script(reinterpret_cast<const char*>(data), size);
  std::replace(script.begin(), script.end(), '/', '+');
  sqlite3* db = lm::Open();
  watch.Begin(db);
  lm::RunScript(db, script);
  watch.End();
  lm::Require(sqlite3_close(db) == SQLITE_OK, "nothing of the input is left at work");
  if (++keeper.inputs % lm::kInputsACheck == 0) {
    lm::Require(lm::Answer(keeper.db, lm::kQuestion) == keeper.answer,
                "others' answers stay what they were");
  }
  return 0;
}
