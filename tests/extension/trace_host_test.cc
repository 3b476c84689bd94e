// A host whose trace callback runs statements of its own: they may come while a shadow is stepped
// (look_ahead.h), and have their answers.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/extension/sql_connection.h"
#include "tests/testdata.h"

namespace {

constexpr int kRows = 100;

struct Auditor {
  sqlite3* db;
  const char* sql;
  std::string question;  // each one that is traced asks another
  bool busy = false;
  int num_asked = 0;
  int num_answered = 0;
  std::string error = {};

  static int Trace(unsigned, void* self, void*, void*) {
    static_cast<Auditor*>(self)->Ask();
    return 0;
  }

  void Ask() {
    if (busy) return;
    busy = true;
    sqlite3_stmt* statement = nullptr;
    sqlite3_prepare_v2(db, sql, -1, &statement, nullptr);
    const std::string prompt = question + std::to_string(++num_asked);
    sqlite3_bind_text(statement, 1, prompt.c_str(), -1, SQLITE_TRANSIENT);
    if (sqlite3_step(statement) != SQLITE_ROW) error = sqlite3_errmsg(db);
    num_answered += sqlite3_column_text(statement, 0) != nullptr;
    sqlite3_finalize(statement);
    busy = false;
  }
};

TEST(TraceHostTest, CallsOfACallbackAreItsOwn) {
  lm::SqlConnection connection(":memory:");
  connection.Set("model", LM_TESTDATA "/models/llama-q8_0.gguf");
  connection.Rows(
      "CREATE TABLE t AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT " +
      std::to_string(kRows) + ") SELECT x FROM c");
  int number = 0;
  for (const auto& [rows, audit] : {
           std::pair{"SELECT generate('row ' || x || ?, NULL, '{\"max_tokens\":4}') FROM t",
                     "SELECT generate(?, NULL, '{\"max_tokens\":3}')"},
           std::pair{"SELECT label FROM t, lm_classify_scores('row ' || x || ?, '[\"a\",\"b\"]')",
                     "SELECT label FROM lm_classify_scores(?, '[\"c\",\"d\"]')"},
       }) {
    for (const unsigned events : {SQLITE_TRACE_ROW, SQLITE_TRACE_STMT}) {
      const std::string run = std::to_string(++number);
      Auditor auditor{connection.handle(), audit, "audit " + run + " "};
      sqlite3_trace_v2(connection.handle(), events, &Auditor::Trace, &auditor);
      EXPECT_GE(connection.Rows(rows, {run}).size(), kRows);
      sqlite3_trace_v2(connection.handle(), 0, nullptr, nullptr);
      EXPECT_GT(auditor.num_asked, 0);
      EXPECT_EQ(auditor.num_answered, auditor.num_asked);
      EXPECT_EQ(auditor.error, "");
    }
  }
  // The statement's own rows were foreseen all the same.
  EXPECT_GT(std::stoi(connection.Value("SELECT max(foreseen) FROM lm_stats")), 3 * kRows);
}

}  // namespace
