// Sixty-four connections that do whatever users do, all at once: they ask, annotate tables, run
// jobs, change their settings and models, interrupt and cancel one another, close and open again.
// Every answer is the one that its question has alone, or an error that somebody's wish explains;
// afterwards the databases are whole, and threads and engines are gone.
//
//   crowd_test                       # some seconds
//   LM_CROWD_SECONDS=3600 crowd_test # by hand, and under ThreadSanitizer
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/extension/sql_connection.h"
#include "tests/testdata.h"

#ifdef LM_CANNED_SERVER
extern "C" {
#include "tests/fault/canned_server.h"
}
#endif

namespace {

using lm::SqlConnection;
using lm::SqlError;
using Clock = std::chrono::steady_clock;

constexpr int kConnections = 64;
constexpr int kFiles = 4;
constexpr int kPrompts = 12;
constexpr char kSystem[] =
    "You are given a note of an engineer. Say in one word what it is about: weather, food, work, "
    "travel, sport or music. Do not explain, and do not repeat the note.";
// How an answer is asked for.
constexpr std::array<const char*, 3> kForms = {
    R"({"max_tokens":6})",
    R"({"max_tokens":6,"temperature":1.3,"seed":7})",
    R"({"choices":["weather","food","work","travel"],"max_tokens":9})",
};
constexpr int kRemoteForms = 1;  // the server says one word, whatever it is asked

std::string Prompt(int i) {
  const char* subjects[] = {"rain", "a bicycle", "soup", "a train"};
  return "note " + std::to_string(i) + ": " + subjects[i % 4] + std::string(i % 5, '!');
}

struct Outcome {
  std::atomic<int64_t> right{0};
  std::atomic<int64_t> interrupted{0};
  std::atomic<int64_t> cancelled{0};
  std::atomic<int64_t> locked{0};
};

int CountThreads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

class CrowdTest : public testing::Test {
 protected:
  struct Model {
    std::string path;
    int forms = kForms.size();
    std::array<std::array<std::string, kPrompts>, kForms.size()> answers{};
  };
  // A connection of the crowd; others may interrupt it, and only its own thread replaces it.
  struct Member {
    std::mutex mutex;
    std::unique_ptr<SqlConnection> connection;
    const Model* model = nullptr;
    std::mt19937 random;
    std::string at;  // its database
    std::atomic<const char*> doing{"nothing"};
    int jobs = 0;
  };

  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("crowd." + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
    for (const char* name : {"llama-q8_0", "qwen35-q8_0", "gemma3-f32"}) {
      models_.push_back({std::string(LM_TESTDATA "/models/") + name + ".gguf"});
    }
#ifdef LM_CANNED_SERVER
    const int port = StartCannedServer(nullptr);
    ASSERT_GT(port, 0);
    address_ = "http://127.0.0.1:" + std::to_string(port) + "/v1";
    models_.push_back({"remote", kRemoteForms});
#endif
    for (Model& model : models_) {
      SqlConnection alone(":memory:");
      Introduce(alone, model);
      for (int form = 0; form < model.forms; ++form) {
        for (int i = 0; i < kPrompts; ++i) {
          model.answers[form][i] =
              alone.Value("SELECT generate(?, ?, ?)", {Prompt(i), kSystem, kForms[form]});
        }
      }
    }
    for (int i = 0; i < kFiles; ++i) {
      SqlConnection file(File(i));
      file.Rows(
          "PRAGMA journal_mode = wal; CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT);"
          "CREATE TABLE labels(job TEXT, id INTEGER, label TEXT, PRIMARY KEY (job, id))");
      for (int n = 0; n < kPrompts; ++n) {
        file.Rows("INSERT INTO notes VALUES (?, ?)", {std::to_string(n), Prompt(n)});
      }
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string File(int i) const { return folder_ / ("notes" + std::to_string(i) + ".db"); }

  void Introduce(SqlConnection& connection, const Model& model) const {
    if (!address_.empty()) {
      connection.Rows("INSERT OR REPLACE INTO temp.lm_models(name, path) VALUES ('remote', ?)",
                      {address_});
    }
    connection.Set("model", model.path);
    connection.Rows("INSERT OR REPLACE INTO temp.lm_settings VALUES ('threads', 1)");
  }

  static int Draw(Member& member, int below) { return static_cast<int>(member.random() % below); }

  void Open(Member& member) {
    member.at = Draw(member, 5) == 0 ? ":memory:" : File(Draw(member, kFiles));
    auto connection = std::make_unique<SqlConnection>(member.at);
    member.model = &models_[Draw(member, static_cast<int>(models_.size()))];
    Introduce(*connection, *member.model);
    std::lock_guard lock(member.mutex);
    connection.swap(member.connection);
  }
  static void Close(Member& member) {
    std::lock_guard lock(member.mutex);
    member.connection = nullptr;
  }

  static void ExpectAnswer(const Member& member, int form, int i, const std::string& answer) {
    EXPECT_EQ(answer, member.model->answers[form][i]) << member.model->path << ": " << Prompt(i);
  }

  void Ask(Member& member) {
    const int form = Draw(member, member.model->forms), i = Draw(member, kPrompts);
    ExpectAnswer(
        member, form, i,
        member.connection->Value("SELECT generate(?, ?, ?)", {Prompt(i), kSystem, kForms[form]}));
  }
  void AskForMany(Member& member) {
    const int form = Draw(member, member.model->forms);
    nlohmann::json prompts;
    for (int i = 0; i < kPrompts; ++i) prompts.push_back(Prompt(i));
    const auto answers = member.connection->Column(
        "SELECT coalesce(error, value) FROM lm_each(?, ?, ?) ORDER BY key",
        {prompts.dump(), kSystem, kForms[form]});
    ASSERT_EQ(answers.size(), size_t{kPrompts});
    for (int i = 0; i < kPrompts; ++i) ExpectAnswer(member, form, i, answers[i]);
  }
  void AskOfATable(Member& member) {
    if (member.at == ":memory:") return;
    const int form = Draw(member, member.model->forms);
    const auto rows = member.connection->Rows("SELECT id, generate(body, ?, ?) FROM notes",
                                              {kSystem, kForms[form]});
    ASSERT_EQ(rows.size(), size_t{kPrompts});
    for (const auto& row : rows) ExpectAnswer(member, form, std::stoi(row[0]), row[1]);
  }
  // Run again until nobody interrupts it.
  void RunAJob(Member& member) {
    if (member.at == ":memory:") return;
    const int form = Draw(member, member.model->forms);
    const std::string name =
        std::to_string(&member - members_.data()) + "." + std::to_string(++member.jobs);
    SqlConnection& connection = *member.connection;
    connection.Rows(
        "INSERT INTO lm_jobs(name, query, system, target, options) VALUES (?, "
        "'SELECT id, body FROM notes', ?, 'INSERT INTO labels VALUES (''" +
            name + "'', :id, :value)', ?)",
        {name, kSystem, kForms[form]});
    for (bool ran = false; !ran;) {
      try {
        connection.Rows("SELECT * FROM lm_run(?)", {name});
        ran = true;
      } catch (const SqlError& error) {
        if (!Explained(error.what())) throw;
      }
    }
    for (bool read = false; !read;) {
      try {
        const auto rows = connection.Rows("SELECT id, label FROM labels WHERE job = ?", {name});
        read = true;
        EXPECT_EQ(rows.size(), size_t{kPrompts}) << "job " << name << " in " << member.at;
        for (const auto& row : rows) ExpectAnswer(member, form, std::stoi(row[0]), row[1]);
        connection.Rows("DELETE FROM labels WHERE job = ?", {name});
      } catch (const SqlError& error) {
        if (!Explained(error.what())) throw;
        read = false;
      }
    }
  }
  void ChangeASetting(Member& member) {
    // As SQL; "" is the default. A salt is this process's: who has it may cancel what others run.
    static const std::vector<std::pair<std::string, std::vector<std::string>>> kSettings = {
        {"lookahead", {"'on'", "'off'"}},           {"speculate", {"'off'", "'auto'", "'always'"}},
        {"salt", {"?1 || ' one'", "?1 || ' two'"}}, {"threads", {"1", "2"}},
        {"kv_bytes", {"2000000", "4000000"}},       {"prefix_store", {"", "?1 || '/store'"}},
        {"memo", {"", "?1 || '/memo.db'"}},
    };
    const auto& [key, values] = kSettings[Draw(member, static_cast<int>(kSettings.size()))];
    const std::string& value = values[Draw(member, static_cast<int>(values.size()))];
    member.connection->Rows(value.empty() ? "DELETE FROM temp.lm_settings WHERE key = '" + key + "'"
                                          : "INSERT OR REPLACE INTO temp.lm_settings VALUES ('" +
                                                key + "', " + value + ")",
                            {folder_});
  }
  void SwapTheModel(Member& member) {
    const Model& model = models_[Draw(member, static_cast<int>(models_.size()))];
    member.connection->Set("model", model.path);
    member.model = &model;
  }
  void InterruptAnother(Member& member) {
    Member& other = members_[Draw(member, kConnections)];
    std::lock_guard lock(other.mutex);
    if (other.connection != nullptr) sqlite3_interrupt(other.connection->handle());
  }
  void CancelTheOthers(Member& member) { member.connection->Rows("DELETE FROM lm_running"); }
  void LookAround(Member& member) {
    static constexpr const char* kViews[] = {
        "SELECT * FROM lm_stats",       "SELECT * FROM lm_cache", "SELECT * FROM lm_requests",
        "SELECT * FROM lm_running",     "SELECT * FROM lm_memo",  "SELECT lm_debug()",
        "SELECT * FROM temp.lm_models", "SELECT * FROM lm_jobs"};
    member.connection->Rows(kViews[Draw(member, std::size(kViews))]);
  }
  void Prefill(Member& member) {
    if (member.model->forms == kRemoteForms) return;
    member.connection->Rows("SELECT lm_prefill(NULL, ?)", {kSystem});
  }
  void OpenAgain(Member& member) {
    Close(member);
    Open(member);
  }

  // Whether somebody wished it, or a database was busy.
  bool Explained(const std::string& error) {
    if (error.ends_with("interrupted")) return ++outcome_.interrupted, true;
    if (error.find("which deleted it from lm_running") != std::string::npos) {
      return ++outcome_.cancelled, true;
    }
    if (error == "database is locked") return ++outcome_.locked, true;
    return false;
  }

  struct Action {
    const char* name;
    void (CrowdTest::*act)(Member&);
    int weight;
    std::atomic<int64_t> done{0};
  };

  void Live(Member& member, Clock::time_point end) {
    int weights = 0;
    for (const Action& action : actions_) weights += action.weight;
    Open(member);
    while (Clock::now() < end) {
      int at = Draw(member, weights);
      Action* action = actions_.data();
      while (at >= action->weight) at -= action++->weight;
      member.doing = action->name;
      try {
        (this->*action->act)(member);
        ++action->done;
        ++outcome_.right;
      } catch (const SqlError& error) {
        EXPECT_TRUE(Explained(error.what())) << action->name << ": " << error.what();
      }
    }
    member.doing = "nothing";
    Close(member);
  }

  std::filesystem::path folder_;
  std::string address_;
  std::vector<Model> models_;
  std::vector<Member> members_ = std::vector<Member>(kConnections);
  Outcome outcome_;
  std::array<Action, 11> actions_ = {{
      {"ask", &CrowdTest::Ask, 20},
      {"ask for many", &CrowdTest::AskForMany, 8},
      {"ask of a table", &CrowdTest::AskOfATable, 8},
      {"run a job", &CrowdTest::RunAJob, 2},
      {"change a setting", &CrowdTest::ChangeASetting, 8},
      {"swap the model", &CrowdTest::SwapTheModel, 4},
      {"interrupt another", &CrowdTest::InterruptAnother, 8},
      {"cancel the others", &CrowdTest::CancelTheOthers, 1},
      {"look around", &CrowdTest::LookAround, 8},
      {"prefill", &CrowdTest::Prefill, 2},
      {"open again", &CrowdTest::OpenAgain, 6},
  }};
};

TEST_F(CrowdTest, EveryAnswerIsTheOneThatItsQuestionHasAlone) {
  const char* wanted = std::getenv("LM_CROWD_SECONDS");
  const auto seconds = std::chrono::seconds(wanted != nullptr ? std::atoi(wanted) : 10);
  // Threads that stay: a sanitizer's own, the network's, the one that tells other processes of this
  // one's work.
  std::thread([] {}).join();
  {
    SqlConnection first(File(0));
    Introduce(first, models_[0]);
    first.Rows("SELECT generate('Hello')");
  }
  const int threads_before = CountThreads();
  const Clock::time_point end = Clock::now() + seconds;
  std::vector<std::thread> threads;
  for (int i = 0; i < kConnections; ++i) {
    members_[i].random.seed(20261123 + i);
    threads.emplace_back([this, i, end] { Live(members_[i], end); });
  }
  // A crowd that stands still is a failure that says who waits for what.
  const Clock::time_point patience = end + std::chrono::minutes(10);
  std::atomic<bool> over{false};
  std::thread watcher([&] {
    while (!over) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (Clock::now() < patience) continue;
      for (Member& member : members_) std::fprintf(stderr, "%s\n", member.doing.load());
      std::abort();
    }
  });
  for (std::thread& thread : threads) thread.join();
  over = true;
  watcher.join();

  for (const Action& action : actions_) {
    EXPECT_GT(action.done, 0) << action.name;
    std::printf("%-18s %9lld\n", action.name, static_cast<long long>(action.done.load()));
  }
  std::printf("right %lld, interrupted %lld, cancelled %lld, locked %lld\n",
              static_cast<long long>(outcome_.right), static_cast<long long>(outcome_.interrupted),
              static_cast<long long>(outcome_.cancelled), static_cast<long long>(outcome_.locked));
  EXPECT_GT(outcome_.interrupted, 0);
  for (int i = 0; i < kFiles; ++i) {
    SqlConnection file(File(i));
    EXPECT_EQ(file.Value("PRAGMA integrity_check"), "ok");
    EXPECT_EQ(file.Value("SELECT count(*) FROM lm_running"), "0");
    EXPECT_EQ(nlohmann::json::parse(file.Value("SELECT lm_debug()")).at("engines").size(), 0u);
  }
  // What closes behind the last connection takes a moment.
  for (int i = 0; i < 100 && CountThreads() > threads_before; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(CountThreads(), threads_before);
}

}  // namespace
