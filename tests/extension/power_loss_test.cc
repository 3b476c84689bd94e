// The power fails in the midst of a job, or of questions that a memo file remembers: what was not
// synced is then there, or not, or in parts. Afterwards the database is whole, the job goes on and
// every row is done once; the memo is whole or refused, and no answer is wrong.
//
//   power_loss_test                  # 10 cuts of each kind
//   LM_POWER_CUTS=500 power_loss_test
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/extension/overlaid_vfs.h"
#include "tests/extension/sql_connection.h"
#include "tests/testdata.h"

namespace {

constexpr int kSector = 512;
constexpr int kRows = 24;

int NumCuts() {
  const char* cuts = std::getenv("LM_POWER_CUTS");
  return cuts == nullptr ? 10 : std::atoi(cuts);
}

// A disk that keeps what was synced, and of the rest what it likes.
class Disk : public lm::FileChanges {
 public:
  // From now on: what the files hold is durable, and the power fails before the `changes`-th change
  // of a file whose path begins with `folder`.
  void Start(const std::string& folder, int64_t changes) {
    std::lock_guard lock(mutex_);
    folder_ = folder;
    left_ = changes;
    made_ = 0;
    files_.clear();
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream in(entry.path(), std::ios::binary);
      files_[entry.path()].durable = std::string(std::istreambuf_iterator<char>(in), {});
      files_[entry.path()].exists = true;
    }
  }
  void Stop() {
    std::lock_guard lock(mutex_);
    folder_.clear();
  }
  bool is_off() {
    std::lock_guard lock(mutex_);
    return left_ < 0;
  }
  int64_t made() {
    std::lock_guard lock(mutex_);
    return made_;
  }

  // Writes what the disk holds when the power is back to `folder`.
  void Recover(const std::string& folder, std::mt19937_64* dice) {
    std::lock_guard lock(mutex_);
    std::filesystem::create_directory(folder);
    for (const auto& [path, file] : files_) {
      const std::string name = std::filesystem::path(path).filename();
      if (name.size() > 4 && name.ends_with("-shm")) continue;  // memory
      // A file's name is durable with its first sync, its end with the folder's.
      if (!file.exists && !file.deleted && (file.pending.empty() || (*dice)() % 2 == 0)) continue;
      std::string content = file.durable;
      if (file.deleted) {
        if ((*dice)() % 2 == 0) continue;
        content = *file.deleted;
      } else if ((*dice)() % 2 == 0) {  // it came as far as this
        const size_t done = (*dice)() % (file.pending.size() + 1);
        for (size_t i = 0; i < done; ++i) Apply(file.pending[i], nullptr, &content);
      } else {
        for (const Change& change : file.pending) Apply(change, dice, &content);
      }
      std::ofstream(std::filesystem::path(folder) / name, std::ios::binary) << content;
    }
    folder_.clear();
  }

  int OnCreate(const std::string& path) override {
    return Make(path, [](File*) {});
  }
  int OnWrite(const std::string& path, const void* data, int bytes, int64_t offset) override {
    return Make(path, [&](File* file) {
      file->pending.push_back({offset, std::string(static_cast<const char*>(data), bytes)});
    });
  }
  int OnTruncate(const std::string& path, int64_t size) override {
    return Make(path, [&](File* file) { file->pending.push_back({size, "", true}); });
  }
  int OnSync(const std::string& path) override {
    return Make(path, [](File* file) {
      for (const Change& change : file->pending) Apply(change, nullptr, &file->durable);
      file->pending.clear();
      file->exists = true;
      file->deleted.reset();
    });
  }
  int OnDelete(const std::string& path, bool durably) override {
    std::lock_guard lock(mutex_);
    if (!Counts(path)) return SQLITE_OK;
    if (left_-- <= 0) return SQLITE_IOERR_DELETE;
    ++made_;
    File deleted = std::move(files_[path]);
    files_[path] = {};
    if (!durably && deleted.exists) {  // it may be back
      for (const Change& change : deleted.pending) Apply(change, nullptr, &deleted.durable);
      files_[path].deleted = std::move(deleted.durable);
    }
    return SQLITE_OK;
  }

 private:
  struct Change {
    int64_t offset;
    std::string bytes;
    bool truncates = false;
  };
  struct File {
    std::string durable;
    std::vector<Change> pending;
    bool exists = false;
    std::optional<std::string> deleted;  // of that name, until the new file's is durable
  };

  bool Counts(const std::string& path) const {
    return !folder_.empty() && path.rfind(folder_, 0) == 0;
  }

  template <typename F>
  int Make(const std::string& path, F change) {
    std::lock_guard lock(mutex_);
    if (!Counts(path)) return SQLITE_OK;
    if (left_-- <= 0) return SQLITE_IOERR;
    ++made_;
    change(&files_[path]);
    return SQLITE_OK;
  }

  // All of it; or, with dice, all, nothing, or some of its sectors.
  static void Apply(const Change& change, std::mt19937_64* dice, std::string* content) {
    const uint64_t fate = dice == nullptr ? 0 : (*dice)() % 3;
    if (fate == 1) return;
    if (change.truncates) {
      content->resize(change.offset);
      return;
    }
    const size_t end = change.offset + change.bytes.size();
    if (content->size() < end) content->resize(end, '\0');
    for (size_t at = change.offset; at < end;) {
      const size_t next = std::min<size_t>(end, (at / kSector + 1) * kSector);
      if (fate == 0 || (*dice)() % 2 == 0) {
        content->replace(at, next - at, change.bytes, at - change.offset, next - at);
      }
      at = next;
    }
  }

  std::mutex mutex_;
  std::string folder_;  // empty: nothing is watched
  int64_t left_ = 0;
  int64_t made_ = 0;
  std::map<std::string, File> files_;
};

Disk& TheDisk() {
  static auto* const disk = new Disk;
  return *disk;
}

class Connection : public lm::SqlConnection {
 public:
  explicit Connection(const std::string& path) : SqlConnection(path) {
    Rows("INSERT OR REPLACE INTO temp.lm_settings VALUES ('model', '" LM_TESTDATA
         "/models/llama-q8_0.gguf'), ('max_tokens', 4)");
  }
};

class PowerLossTest : public testing::Test {
 protected:
  void SetUp() override {
    lm::OverlayVfs(&TheDisk());
    folder_ = std::filesystem::temp_directory_path() / ("power." + std::to_string(getpid()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override {
    TheDisk().Stop();
    std::filesystem::remove_all(folder_);
  }

  std::string NewFolder() {
    const std::string path = folder_ / std::to_string(++folders_);
    std::filesystem::create_directory(path);
    return path;
  }

  void MakeJob(const std::string& path, const std::string& pragmas) {
    Connection db(path);
    db.Value(pragmas);
    db.Value(
        "CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT, short TEXT, stored DEFAULT 0);"
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < " +
        std::to_string(kRows) +
        ") INSERT INTO notes(body) SELECT 'note ' || i FROM n;"
        "INSERT INTO lm_jobs(name, query, target, options) VALUES ('label', "
        "'SELECT id, body FROM notes', "
        "'UPDATE notes SET short = :value, stored = stored + 1 WHERE id = :id', "
        "'{\"max_tokens\":4}');");
  }
  static std::string RunJob(Connection* db) {
    return db->Value("SELECT done FROM lm_run('label', '{\"chunk\":4,\"progress_ms\":0}')");
  }
  static std::string Shorts(Connection* db) {
    return db->Value("SELECT group_concat(id || short || stored) FROM notes");
  }

  std::filesystem::path folder_;
  int folders_ = 0;
};

class JobPowerLossTest : public PowerLossTest, public testing::WithParamInterface<std::string> {};

TEST_P(JobPowerLossTest, AJobGoesOnAndDoesEachRowOnce) {
  const std::string pragmas = GetParam();
  // Without a cut: what comes of it, and how many changes that takes.
  std::string expected;
  int64_t changes;
  {
    const std::string folder = NewFolder();
    MakeJob(folder + "/notes.db", pragmas);
    TheDisk().Start(folder, std::numeric_limits<int64_t>::max());
    Connection db(folder + "/notes.db");
    db.Value(pragmas);
    EXPECT_EQ(RunJob(&db), std::to_string(kRows));
    expected = Shorts(&db);
    changes = TheDisk().made();
    TheDisk().Stop();
  }
  ASSERT_GT(changes, kRows / 2);
  int begun = 0, redone = 0;
  for (int cut = 0; cut < NumCuts() && !HasFailure(); ++cut) {
    SCOPED_TRACE(testing::Message() << "cut " << cut << ", " << pragmas);
    std::mt19937_64 dice(cut);
    const std::string before = NewFolder(), after = folder_ / "after";
    MakeJob(before + "/notes.db", pragmas);
    TheDisk().Start(before, static_cast<int64_t>(dice() % changes));
    try {
      Connection db(before + "/notes.db");
      db.Value(pragmas);
      RunJob(&db);
    } catch (const lm::SqlError&) {
      EXPECT_TRUE(TheDisk().is_off()) << "a statement failed before the power did";
    }
    TheDisk().Recover(after, &dice);
    {
      Connection db(after + "/notes.db");
      EXPECT_EQ(db.Value("PRAGMA integrity_check"), "ok");
      const std::string half_done =
          "SELECT count(*) FROM notes LEFT JOIN lm_job_rows AS r ON r.id = notes.id "
          "WHERE (r.state IS 'done') <> (stored = 1) OR short IS NOT r.value OR stored > 1";
      const int stored = std::stoi(db.Value("SELECT sum(stored) FROM notes"));
      begun += stored > 0 && stored < kRows;
      if (stored > 0) {
        EXPECT_EQ(db.Value(half_done), "0");
      }
      EXPECT_EQ(RunJob(&db), std::to_string(kRows));
      EXPECT_EQ(Shorts(&db), expected);
      EXPECT_EQ(db.Value(half_done), "0");
      redone += db.Value("SELECT sum(attempts) FROM lm_job_rows") != std::to_string(kRows);
    }
    std::filesystem::remove_all(before);
    std::filesystem::remove_all(after);
  }
  // Without a sync a commit may be lost whole, and most are.
  const bool synced = pragmas.find("normal") == std::string::npos;
  EXPECT_GT(begun, synced ? 0 : -1) << "no cut came in the midst of the rows";
  std::printf(
      "%s: %d cuts among %ld changes, %d in the midst of the rows, %d with rows done again\n",
      pragmas.c_str(), NumCuts(), static_cast<long>(changes), begun, redone);
}

INSTANTIATE_TEST_SUITE_P(
    Journals, JobPowerLossTest,
    testing::Values("PRAGMA journal_mode = wal; PRAGMA synchronous = normal;",
                    "PRAGMA journal_mode = wal; PRAGMA synchronous = full;",
                    "PRAGMA journal_mode = delete; PRAGMA synchronous = full;",
                    "PRAGMA journal_mode = truncate; PRAGMA synchronous = extra;"),
    [](const auto& info) { return "Mode" + std::to_string(info.index); });

TEST_F(PowerLossTest, AMemoIsWholeAndNoAnswerIsWrong) {
  auto ask = [](Connection* db, int i) {
    return db->Value("SELECT generate('row " + std::to_string(i) + "')");
  };
  auto set_memo = [](Connection* db, const std::string& path) {
    db->Value("INSERT OR REPLACE INTO temp.lm_settings VALUES ('memo', '" + path + "')");
  };
  constexpr int kQuestions = 12;
  std::vector<std::string> answers;
  {
    Connection db(":memory:");
    for (int i = 0; i < kQuestions; ++i) answers.push_back(ask(&db, i));
  }
  int64_t changes;
  {
    const std::string folder = NewFolder();
    TheDisk().Start(folder, std::numeric_limits<int64_t>::max());
    Connection db(":memory:");
    set_memo(&db, folder + "/memo.db");
    for (int i = 0; i < kQuestions; ++i) EXPECT_EQ(ask(&db, i), answers[i]);
    changes = TheDisk().made();
    TheDisk().Stop();
  }
  ASSERT_GT(changes, kQuestions);
  int kept = 0;
  for (int cut = 0; cut < NumCuts() && !HasFailure(); ++cut) {
    SCOPED_TRACE(testing::Message() << "cut " << cut);
    std::mt19937_64 dice(1000 + cut);
    const std::string before = NewFolder();
    const std::string after = folder_ / ("after" + std::to_string(cut));
    TheDisk().Start(before, static_cast<int64_t>(dice() % changes));
    {
      Connection db(":memory:");
      try {
        set_memo(&db, before + "/memo.db");
      } catch (const lm::SqlError&) {
        EXPECT_TRUE(TheDisk().is_off()) << "the memo was refused before the power failed";
      }
      for (int i = 0; i < kQuestions; ++i) EXPECT_EQ(ask(&db, i), answers[i]);
    }
    TheDisk().Recover(after, &dice);
    Connection db(":memory:");
    set_memo(&db, after + "/memo.db");
    for (int i = 0; i < kQuestions; ++i) EXPECT_EQ(ask(&db, i), answers[i]);
    if (std::filesystem::exists(after + "/memo.db")) {
      Connection file(after + "/memo.db");
      EXPECT_EQ(file.Value("PRAGMA integrity_check"), "ok");
      kept += std::stoi(file.Value("SELECT count(*) FROM generations")) == kQuestions;
    }
    std::filesystem::remove_all(before);
  }
  EXPECT_GT(kept, 0) << "no memo was of use after a cut";
  std::printf("memo: %d cuts among %ld changes\n", NumCuts(), static_cast<long>(changes));
}

}  // namespace
