// The memo is a cache: whatever becomes of its disk, answers are given, the hint of lm_stats says
// what is wrong, and when the disk is well again the file is used again.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/extension/overlaid_vfs.h"
#include "tests/extension/sql_connection.h"
#include "tests/testdata.h"

namespace {

// What the disk under files whose name has "memo" does: its `fail_at`-th change from now on, and
// the `failures` - 1 after it, fail with `code`.
struct Disk : lm::FileChanges {
  int code = SQLITE_FULL;
  int64_t fail_at = 0;  // 0: never
  int64_t failures = 0;
  int64_t changes = 0;

  void Fail(int with, int64_t at = 1, int64_t times = INT64_MAX / 2) {
    code = with, fail_at = at, failures = times, changes = 0;
  }
  void Recover() { fail_at = 0; }
  int Change(const std::string& path) {
    if (path.find("memo") == std::string::npos) return SQLITE_OK;
    ++changes;
    const bool fails = fail_at > 0 && changes >= fail_at && changes < fail_at + failures;
    return fails ? code : SQLITE_OK;
  }

  int OnCreate(const std::string& path) override {
    const int result = Change(path);
    return result == SQLITE_FULL ? SQLITE_CANTOPEN : result;
  }
  int OnWrite(const std::string& path, const void*, int, int64_t) override { return Change(path); }
  int OnTruncate(const std::string& path, int64_t) override { return Change(path); }
  int OnSync(const std::string& path) override { return Change(path); }
  int OnDelete(const std::string&, bool) override { return SQLITE_OK; }
};
Disk disk;

class Connection : public lm::SqlConnection {
 public:
  // The engine's thread may be closing the memo that we read: a connection waits for locks.
  explicit Connection(const std::string& path) : SqlConnection(path) {
    Rows("INSERT OR REPLACE INTO temp.lm_settings VALUES ('model', '" LM_TESTDATA
         "/models/llama-q8_0.gguf'), ('max_tokens', 4)");
  }
  void SetMemo(const std::string& path) { Set("memo", path); }
  std::string Ask(int i) { return Value("SELECT generate('row " + std::to_string(i) + "')"); }
  std::string Hint() { return Value("SELECT hint FROM lm_stats"); }
};

// Longer than the memo waits before it tries again.
void Wait() { std::this_thread::sleep_for(std::chrono::milliseconds(1100)); }

class MemoFaultsTest : public testing::Test {
 protected:
  void SetUp() override {
    lm::OverlayVfs(&disk);
    disk.Recover();
    static int num_tests = 0;  // the process remembers what it has read from a path
    folder_ = std::filesystem::temp_directory_path() /
              ("faults." + std::to_string(getpid()) + "." + std::to_string(++num_tests));
    std::filesystem::create_directory(folder_);
    path_ = folder_ / "memo.db";
    Connection without(":memory:");
    for (int i = 0; i < 12; ++i) answers_.push_back(without.Ask(i));
  }
  void TearDown() override {
    disk.Recover();
    std::filesystem::remove_all(folder_);
  }

  int Rows(const std::string& path) {
    Connection file(path);
    EXPECT_EQ(file.Value("PRAGMA integrity_check"), "ok");
    return std::stoi(file.Value("SELECT count(*) FROM generations"));
  }

  std::filesystem::path folder_;
  std::string path_;
  std::vector<std::string> answers_;
};

TEST_F(MemoFaultsTest, AFullDiskStopsNobody) {
  Connection user(":memory:");
  user.SetMemo(path_);
  EXPECT_EQ(user.Ask(0), answers_[0]);
  EXPECT_EQ(user.Hint(), "");
  disk.Fail(SQLITE_FULL);
  for (int i = 1; i < 5; ++i) EXPECT_EQ(user.Ask(i), answers_[i]);
  EXPECT_NE(user.Hint().find("memo.db': database or disk is full; answers are given without it, "
                             "4 wait to be written"),
            std::string::npos)
      << user.Hint();
  // Reading goes on meanwhile, in this process and in others.
  Connection other(":memory:");
  other.SetMemo(path_);
  EXPECT_EQ(other.Ask(0), answers_[0]);
  disk.Recover();
  Wait();
  EXPECT_EQ(user.Ask(5), answers_[5]);
  EXPECT_EQ(user.Hint(), "");
  EXPECT_EQ(Rows(path_), 6);
}

TEST_F(MemoFaultsTest, AnyOneFailureLosesNoAnswer) {
  int failed = 0;
  for (const int code : {SQLITE_FULL, SQLITE_IOERR_WRITE}) {
    for (int64_t at = 1; at <= 16; ++at) {
      SCOPED_TRACE(testing::Message() << "change " << at << " fails with " << code);
      const std::string path =
          folder_ / ("memo" + std::to_string(code) + "." + std::to_string(at) + ".db");
      {
        Connection user(":memory:");
        user.SetMemo(path);
        disk.Fail(code, at, 1);
        for (int i = 0; i < 6; ++i) EXPECT_EQ(user.Ask(i), answers_[i]);
        failed += !user.Hint().empty();
        disk.Recover();
      }  // what has waited is written
      EXPECT_EQ(Rows(path), 6);
    }
  }
  EXPECT_GT(failed, 4);
}

TEST_F(MemoFaultsTest, AFileThatCannotBeOpenedAnyMoreStopsNobody) {
  Connection user(":memory:");
  user.SetMemo(path_);
  EXPECT_EQ(user.Ask(0), answers_[0]);
  std::filesystem::remove(path_);
  disk.Fail(SQLITE_CANTOPEN);
  for (int i = 1; i < 4; ++i) EXPECT_EQ(user.Ask(i), answers_[i]);
  EXPECT_NE(user.Hint().find("unable to open"), std::string::npos) << user.Hint();
  EXPECT_THROW(user.Value("SELECT count(*) FROM lm_memo"), std::runtime_error);
  disk.Recover();
  Wait();
  EXPECT_EQ(user.Ask(4), answers_[4]);
  EXPECT_EQ(user.Hint(), "");
  EXPECT_EQ(Rows(path_), 4);
}

TEST_F(MemoFaultsTest, ADiskThatIsFullWhenTheMemoIsSetIsAnError) {
  disk.Fail(SQLITE_FULL);
  Connection user(":memory:");
  EXPECT_THROW(user.SetMemo(path_), std::runtime_error);
  EXPECT_EQ(user.Ask(0), answers_[0]);
}

TEST_F(MemoFaultsTest, ADeletedOrReplacedFileIsOpenedAnew) {
  Connection user(":memory:");
  user.SetMemo(path_);
  for (int i = 0; i < 3; ++i) user.Ask(i);
  std::filesystem::remove(path_);
  EXPECT_EQ(user.Ask(3), answers_[3]);
  EXPECT_EQ(user.Ask(0), answers_[0]);  // the process still has it
  EXPECT_EQ(Rows(path_), 1);
  EXPECT_EQ(user.Value("SELECT count(*) FROM lm_memo"), "4");  // three in memory alone
  EXPECT_EQ(user.Value("SELECT count(*) FROM lm_memo WHERE rowid > 0"), "1");
  // Another memo in its place.
  const std::string other_path = folder_ / "other memo.db";
  {
    Connection other(":memory:");
    other.SetMemo(other_path);
    for (int i = 4; i < 8; ++i) other.Ask(i);
  }
  // The engine's thread may hold it a little longer.
  while (std::filesystem::exists(other_path + "-wal")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::filesystem::rename(other_path, path_);
  const std::string requests = "SELECT requests FROM lm_stats";
  const std::string before = user.Value(requests);
  for (int i = 4; i < 8; ++i) EXPECT_EQ(user.Ask(i), answers_[i]);
  EXPECT_EQ(user.Value(requests), before) << user.Hint();
  EXPECT_EQ(Rows(path_), 4);
  // And what is no memo is left alone.
  const std::string text = "something else, long enough to be looked at. ";
  std::filesystem::remove(path_);
  std::ofstream(path_) << text << text << text;
  EXPECT_EQ(user.Ask(9), answers_[9]);
  EXPECT_NE(user.Hint().find("not a database"), std::string::npos) << user.Hint();
  EXPECT_EQ(std::filesystem::file_size(path_), 3 * text.size());
}

// As another program can do to it at any time.
TEST_F(MemoFaultsTest, ASchemaThatIsChangedWhileTheFileIsOpenIsNotWrittenTo) {
  Connection user(":memory:");
  user.SetMemo(path_);
  EXPECT_EQ(user.Ask(0), answers_[0]);
  {
    Connection other(path_);
    other.Value("DROP TABLE generations");
  }
  for (int i = 1; i < 4; ++i) EXPECT_EQ(user.Ask(i), answers_[i]);
  EXPECT_NE(user.Hint().find("no such table"), std::string::npos) << user.Hint();
  Wait();
  EXPECT_EQ(user.Ask(4), answers_[4]);
  EXPECT_NE(user.Hint().find("another schema than ours"), std::string::npos) << user.Hint();
}

// Oldest first, and the file never grows beyond its bound by more than an answer.
TEST_F(MemoFaultsTest, TheFileIsBoundedByBytes) {
  Connection user(":memory:");
  user.SetMemo(path_);
  user.Value("INSERT OR REPLACE INTO temp.lm_settings VALUES ('memo_bytes', 60000)");
  const std::string filler(400, 'x');
  for (int i = 0; i < 120; ++i) {
    user.Value("SELECT generate('" + std::to_string(i) + filler + "')");
  }
  const int rows = std::stoi(user.Value("SELECT count(*) FROM lm_memo WHERE rowid > 0"));
  EXPECT_GT(rows, 3);
  EXPECT_LT(rows, 90);
  user.Value("INSERT OR REPLACE INTO temp.lm_settings VALUES ('memo', NULL)");
  EXPECT_EQ(Rows(path_), rows);
  EXPECT_LT(std::filesystem::file_size(path_), 60000u + 30000u);
  Connection file(path_);
  EXPECT_EQ(file.Value("SELECT max(id) FROM generations"), "120");  // the last one stayed
  EXPECT_EQ(file.Value("SELECT max(id) - min(id) + 1 - count(*) FROM generations"), "0");
}

}  // namespace
