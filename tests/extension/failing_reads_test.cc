// A disk that fails at a read: SQLite rolls the transaction back, also where the statement that
// read was ours, within the user's. Then that one has to fail, too.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "tests/extension/overlaid_vfs.h"
#include "tests/extension/sql_connection.h"
#include "tests/testdata.h"

namespace {

// Of the main database one read, counted from when it is armed, fails.
class FailingReads : public lm::FileChanges {
 public:
  int OnCreate(const std::string&) override { return SQLITE_OK; }
  int OnWrite(const std::string&, const void*, int, int64_t) override { return SQLITE_OK; }
  int OnTruncate(const std::string&, int64_t) override { return SQLITE_OK; }
  int OnSync(const std::string&) override { return SQLITE_OK; }
  int OnDelete(const std::string&, bool) override { return SQLITE_OK; }
  int OnRead(const std::string& path) override {
    return path.ends_with(name_) && left_ > 0 && --left_ == 0 ? SQLITE_IOERR_READ : SQLITE_OK;
  }

  void Arm(const std::string& name, int reads) {
    name_ = name;
    left_ = reads;
  }
  bool armed() const { return left_ > 0; }

 private:
  std::string name_;
  int left_ = 0;
};

FailingReads* Reads() {
  static auto* const reads = [] {
    auto* made = new FailingReads;
    lm::OverlayVfs(made);
    return made;
  }();
  return reads;
}

TEST(FailingReadsTest, ATransactionThatIsRolledBackEndsItsStatement) {
  Reads();
  const std::string name = "failing_reads_" + std::to_string(getpid()) + ".db";
  const std::string path = testing::TempDir() + name;
  bool reached_the_end = false;
  int num_failed = 0;
  for (int read = 1; !reached_the_end; ++read) {
    unlink(path.c_str());
    lm::SqlConnection connection(path);
    connection.Set("model", LM_TESTDATA "/models/llama-q8_0.gguf");
    connection.Rows(
        "CREATE TABLE t(b, pad); WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c "
        "LIMIT 30) INSERT INTO t SELECT 'row ' || x, zeroblob(3000) FROM c; PRAGMA cache_size = 3; "
        "BEGIN; INSERT INTO t VALUES ('mine', zeroblob(3000))");
    Reads()->Arm(name, read);
    bool failed = false;
    try {
      connection.Rows("SELECT generate(b, NULL, '{\"max_tokens\":2}') FROM t");
    } catch (const lm::SqlError&) {
      failed = true;
    }
    reached_the_end = Reads()->armed();
    Reads()->Arm(name, 0);
    num_failed += failed;
    if (failed) continue;
    EXPECT_EQ(sqlite3_get_autocommit(connection.handle()), 0) << read;
    EXPECT_EQ(connection.Value("SELECT count(*) FROM t WHERE b = 'mine'"), "1") << read;
  }
  unlink(path.c_str());
  EXPECT_GT(num_failed, 20);
}

}  // namespace
