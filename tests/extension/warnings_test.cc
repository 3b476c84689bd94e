// What matters about a statement is told to the host's log, once a statement.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <string>
#include <vector>

#include "lm/sqlite.h"
#include "tests/testdata.h"

namespace {

struct Warning {
  int code;
  std::string text;
};

class WarningsTest : public testing::Test {
 protected:
  void SetUp() override {
    warnings_.clear();
    sqlite3_shutdown();
    const auto keep = [](void* all, int code, const char* text) {
      static_cast<std::vector<Warning>*>(all)->push_back({code, text});
    };
    ASSERT_EQ(sqlite3_config(SQLITE_CONFIG_LOG,
                             static_cast<void (*)(void*, int, const char*)>(keep), &warnings_),
              SQLITE_OK);
    ASSERT_EQ(sqlite3_open(":memory:", &db_), SQLITE_OK);
    ASSERT_EQ(sqlite3_lm_init(db_, nullptr, nullptr) & 0xff, SQLITE_OK);
    Run("INSERT INTO temp.lm_settings VALUES ('model', '" LM_TESTDATA
        "/models/llama-q8_0.gguf'), "
        "('max_tokens', 1)");
    Run("CREATE TABLE docs(body)");
    Run("WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 40) "
        "INSERT INTO docs SELECT 'row ' || i FROM n");
    warnings_.clear();
  }
  void TearDown() override {
    EXPECT_EQ(sqlite3_close(db_), SQLITE_OK);
    sqlite3_shutdown();
    sqlite3_config(SQLITE_CONFIG_LOG, nullptr, nullptr);
  }

  void Run(const std::string& sql) {
    EXPECT_EQ(sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(db_);
  }

  std::vector<Warning> warnings_;
  sqlite3* db_ = nullptr;
};

TEST_F(WarningsTest, SaysOnceThatAStatementIsAnsweredRowByRow) {
  Run("INSERT INTO temp.lm_settings VALUES ('lookahead', 'off')");
  const std::string sql = "SELECT count(generate(body)) FROM docs";
  Run(sql);
  ASSERT_EQ(warnings_.size(), size_t{1});
  EXPECT_EQ(warnings_[0].code, SQLITE_WARNING);
  EXPECT_EQ(
      warnings_[0].text,
      "sqlite-lm: generate() is answered row by row (lm_settings has lookahead 'off'): " + sql);
  // All remembered now: nothing is slow, and nothing is said.
  Run(sql);
  EXPECT_EQ(warnings_.size(), size_t{1});
  Run("UPDATE docs SET body = generate(body || ' again')");
  ASSERT_EQ(warnings_.size(), size_t{2});
  EXPECT_NE(warnings_[1].text.find("UPDATE docs"), std::string::npos);
}

TEST_F(WarningsTest, SaysNothingWhereRowsDecodeTogether) {
  Run("SELECT count(generate(body)) FROM docs");
  Run("UPDATE docs SET body = generate(body || ' again')");
  Run("SELECT generate('a single row')");
  EXPECT_EQ(warnings_.size(), size_t{0});
}

}  // namespace
