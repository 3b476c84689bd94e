// Hosts that finalize all statements which sqlite3_next_stmt lists before they close a connection:
// the first of these are ours, which a cursor keeps for the host's own statement.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "lm/sqlite.h"
#include "tests/testdata.h"

namespace {

constexpr char kPrepare[] =
    "INSERT OR REPLACE INTO temp.lm_settings VALUES ('model', '" LM_TESTDATA
    "/models/llama-q8_0.gguf'), ('max_tokens', 2);"
    "CREATE TABLE docs(id INTEGER PRIMARY KEY, body);"
    "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 600) "
    "INSERT INTO docs SELECT i, 'row ' || i FROM n;"
    "INSERT INTO lm_jobs(name, query) VALUES ('a', 'SELECT id, body FROM docs LIMIT 40'), "
    "('b', 'SELECT id, body FROM docs LIMIT 20');"
    "INSERT INTO lm_job_rows(job, id, prompt) SELECT 'a', id, body FROM docs WHERE id > 500;";

// Each stands after a few rows in the midst of a statement of ours: one that a table of ours keeps,
// or the shadow that looks ahead of it.
constexpr const char* kStatements[] = {
    "SELECT generate(body, NULL, '{\"cache\":false}') FROM docs",
    "SELECT label FROM docs, lm_classify_scores(body, '[\"a\",\"b\"]', NULL, '{\"cache\":false}')",
    "SELECT * FROM lm_query('SELECT id, body FROM docs')",
    "SELECT * FROM lm_query('SELECT d.id, d.body FROM docs AS d, "
    "lm_query(''SELECT id, body FROM docs'') AS q')",
    "SELECT * FROM lm_job_diff('a', 'b')",
    "SELECT * FROM lm_run('b', '{\"chunk\":2,\"progress_ms\":0}')",
};

class Host {
 public:
  Host() {
    Check(sqlite3_open(":memory:", &db_));
    Check(sqlite3_lm_init(db_, nullptr, nullptr) & 0xff);
    Check(sqlite3_exec(db_, kPrepare, nullptr, nullptr, nullptr));
  }
  ~Host() { sqlite3_close_v2(db_); }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  sqlite3_stmt* Prepare(const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    Check(sqlite3_prepare_v2(db_, sql.c_str(), -1, &statement, nullptr));
    return statement;
  }
  void Begin(sqlite3_stmt* statement) {
    for (int rows = 0; rows < 6 && Listed().size() < 2; ++rows) {
      if (sqlite3_step(statement) != SQLITE_ROW) throw std::runtime_error(sqlite3_errmsg(db_));
    }
  }
  std::vector<sqlite3_stmt*> Listed() {
    std::vector<sqlite3_stmt*> listed;
    for (sqlite3_stmt* s = sqlite3_next_stmt(db_, nullptr); s != nullptr;
         s = sqlite3_next_stmt(db_, s)) {
      listed.push_back(s);
    }
    return listed;
  }
  int Close() {
    const int code = sqlite3_close(db_);
    if (code == SQLITE_OK) db_ = nullptr;
    return code;
  }

 private:
  void Check(int code) {
    if (code != SQLITE_OK) throw std::runtime_error(sqlite3_errmsg(db_));
  }

  sqlite3* db_ = nullptr;
};

class ClosingHostTest : public testing::TestWithParam<const char*> {};

TEST_P(ClosingHostTest, FinalizesWhatIsListedAndCloses) {
  Host host;
  host.Begin(host.Prepare(GetParam()));
  EXPECT_GT(host.Listed().size(), 1u) << "none of ours is kept: nothing is tested";
  EXPECT_EQ(host.Close(), SQLITE_BUSY);
  for (std::vector<sqlite3_stmt*> left; !(left = host.Listed()).empty();) {
    sqlite3_finalize(left.front());
  }
  EXPECT_EQ(host.Close(), SQLITE_OK);
}

// Statements that the host prepares at the addresses of those are left alone.
TEST_P(ClosingHostTest, KeepsItsStatementsInTheirPlaces) {
  Host host;
  sqlite3_stmt* const statement = host.Prepare(GetParam());
  host.Begin(statement);
  std::vector<sqlite3_stmt*> ours = host.Listed();
  std::erase(ours, statement);
  for (sqlite3_stmt* one : ours) sqlite3_finalize(one);
  std::vector<sqlite3_stmt*> own;
  bool same_place = false;
  for (int i = 0; i < 32; ++i) {
    own.push_back(host.Prepare("SELECT " + std::to_string(i)));
    same_place |= std::find(ours.begin(), ours.end(), own.back()) != ours.end();
  }
  sqlite3_finalize(statement);
  std::vector<sqlite3_stmt*> listed = host.Listed();
  std::reverse(listed.begin(), listed.end());
  ASSERT_EQ(listed, own);
  for (sqlite3_stmt* one : own) {
    EXPECT_EQ(sqlite3_step(one), SQLITE_ROW);
    sqlite3_finalize(one);
  }
  EXPECT_EQ(host.Close(), SQLITE_OK);
  EXPECT_TRUE(same_place) << "no address was given out again: nothing is tested";
}

// sqlite3_close_v2 leaves the connection to its last statement.
TEST_P(ClosingHostTest, ClosesBeforeItFinalizes) {
  sqlite3_stmt* statement = nullptr;
  {
    Host host;
    statement = host.Prepare(GetParam());
    host.Begin(statement);
  }
  EXPECT_EQ(sqlite3_finalize(statement), SQLITE_OK);
}

INSTANTIATE_TEST_SUITE_P(Statements, ClosingHostTest, testing::ValuesIn(kStatements));

}  // namespace
