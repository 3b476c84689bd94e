// Looking ahead reads no table whose rows are gone once they have been read, whatever it is called:
// a queue of 30 rows gives the same 30 rows with it and without it.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "lm/sqlite.h"
#include "tests/testdata.h"

namespace {

constexpr int kRows = 30;
constexpr char kOptions[] = R"(NULL, '{"max_tokens":2,"cache":false}')";

// A virtual table that takes each row from the queue as it gives it out. Any name and schema.
struct Queue {
  sqlite3_vtab base = {};
  int* left = nullptr;
};
struct QueueCursor {
  sqlite3_vtab_cursor base = {};
  int row = 0;  // 0: at the end
};
Queue* QueueOf(sqlite3_vtab_cursor* cursor) { return reinterpret_cast<Queue*>(cursor->pVtab); }
QueueCursor* Of(sqlite3_vtab_cursor* cursor) { return reinterpret_cast<QueueCursor*>(cursor); }

int Take(sqlite3_vtab_cursor* cursor) {
  int& left = *QueueOf(cursor)->left;
  Of(cursor)->row = left > 0 ? left-- : 0;
  return SQLITE_OK;
}

template <bool kLikeJsonEach>
sqlite3_module QueueModule() {
  sqlite3_module module = {};
  module.xCreate = module.xConnect = [](sqlite3* db, void* left, int, const char* const*,
                                        sqlite3_vtab** out, char**) {
    auto* queue = new Queue;
    queue->left = static_cast<int*>(left);
    *out = &queue->base;
    return sqlite3_declare_vtab(db, kLikeJsonEach
                                        ? "CREATE TABLE q(body, json_each, key, value, x HIDDEN)"
                                        : "CREATE TABLE q(body, json_each, json_tree)");
  };
  module.xDestroy = module.xDisconnect = [](sqlite3_vtab* table) {
    delete reinterpret_cast<Queue*>(table);
    return SQLITE_OK;
  };
  module.xBestIndex = [](sqlite3_vtab*, sqlite3_index_info* info) {
    info->estimatedCost = 1;
    return SQLITE_OK;
  };
  module.xOpen = [](sqlite3_vtab*, sqlite3_vtab_cursor** out) {
    *out = &(new QueueCursor)->base;
    return SQLITE_OK;
  };
  module.xClose = [](sqlite3_vtab_cursor* cursor) {
    delete Of(cursor);
    return SQLITE_OK;
  };
  module.xFilter = [](sqlite3_vtab_cursor* cursor, int, const char*, int, sqlite3_value**) {
    return Take(cursor);
  };
  module.xNext = Take;
  module.xEof = [](sqlite3_vtab_cursor* cursor) { return Of(cursor)->row == 0 ? 1 : 0; };
  module.xColumn = [](sqlite3_vtab_cursor* cursor, sqlite3_context* context, int) {
    const std::string text = "row " + std::to_string(Of(cursor)->row);
    sqlite3_result_text(context, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
    return SQLITE_OK;
  };
  module.xRowid = [](sqlite3_vtab_cursor* cursor, sqlite3_int64* rowid) {
    *rowid = Of(cursor)->row;
    return SQLITE_OK;
  };
  return module;
}

// A connection with the module "queue".
class Database {
 public:
  explicit Database(const char* lookahead) {
    static const sqlite3_module kQueue = QueueModule<false>();
    Check(sqlite3_open(":memory:", &db_));
    Check(sqlite3_lm_init(db_, nullptr, nullptr) & 0xff);
    Check(sqlite3_create_module(db_, "queue", &kQueue, &left_));
    Run("INSERT OR REPLACE INTO temp.lm_settings VALUES ('model', '" LM_TESTDATA
        "/models/llama-q8_0.gguf'), ('lookahead', '" +
        std::string(lookahead) + "')");
    Run("CREATE TABLE docs(body)");
    Run("WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 30) "
        "INSERT INTO docs SELECT 'row ' || i FROM n");
  }
  ~Database() { sqlite3_close(db_); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  sqlite3* get() const { return db_; }
  int* left() { return &left_; }

  // All rows, their values joined.
  std::vector<std::string> Run(const std::string& sql) {
    std::vector<std::string> rows;
    sqlite3_stmt* statement = nullptr;
    Check(sqlite3_prepare_v2(db_, sql.c_str(), -1, &statement, nullptr));
    int code;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
      std::string row;
      for (int i = 0; i < sqlite3_column_count(statement); ++i) {
        const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, i));
        row += std::string(i > 0 ? "|" : "") + (text != nullptr ? text : "NULL");
      }
      rows.push_back(row);
    }
    sqlite3_finalize(statement);
    Check(code == SQLITE_DONE ? SQLITE_OK : code);
    return rows;
  }
  int Foreseen() { return std::stoi(Run("SELECT coalesce(max(foreseen), 0) FROM lm_stats").at(0)); }

 private:
  void Check(int code) {
    if (code != SQLITE_OK) throw std::runtime_error(sqlite3_errmsg(db_));
  }

  sqlite3* db_ = nullptr;
  int left_ = kRows;
};

struct Case {
  const char* prepare;  // what the database has
  const char* from;     // a FROM that reads the queue
};

class QueueTest : public testing::TestWithParam<Case> {};

TEST_P(QueueTest, GivesEachOfItsRowsOnce) {
  const std::string select =
      std::string("SELECT generate(body, ") + kOptions + ") FROM " + GetParam().from;
  std::vector<std::string> rows[2];
  for (int on = 0; on < 2; ++on) {
    Database db(on != 0 ? "on" : "off");
    if (*GetParam().prepare != '\0') db.Run(GetParam().prepare);
    rows[on] = db.Run(select);
    EXPECT_EQ(db.Foreseen(), 0);
  }
  EXPECT_EQ(rows[0].size(), size_t{kRows});
  EXPECT_EQ(rows[1], rows[0]);
}

INSTANTIATE_TEST_SUITE_P(
    Names, QueueTest,
    testing::Values(Case{"", "queue"}, Case{"", "queue AS json_each"}, Case{"", "queue json_tree"},
                    Case{"", "queue AS \"json_each\""}, Case{"", "queue AS lm_chunks"},
                    Case{"", "(SELECT body, json_each FROM queue)"},
                    Case{"", "queue WHERE json_each IS NOT NULL AND json_tree IS NOT NULL"},
                    Case{"", "json_each('[1]') CROSS JOIN queue"},
                    Case{"", "queue AS json_each, json_tree('1') AS q"},
                    Case{"", "(SELECT body, 1 AS json_each, 2 AS json_tree FROM queue)"},
                    Case{"CREATE VIRTUAL TABLE main.json_each USING queue", "json_each"},
                    Case{"CREATE VIRTUAL TABLE main.json_each USING queue", "main.json_each"},
                    Case{"CREATE VIRTUAL TABLE temp.json_each USING queue", "json_each"},
                    Case{"CREATE VIRTUAL TABLE temp.json_each USING queue", "temp.json_each AS j"},
                    Case{"CREATE VIRTUAL TABLE temp.lm_chunks USING queue", "lm_chunks"},
                    Case{"CREATE VIRTUAL TABLE main.q USING queue", "q AS json_each"},
                    Case{"CREATE TEMP VIEW json_each AS SELECT body FROM queue", "json_each"},
                    Case{"",
                         "(WITH json_each AS (SELECT body FROM queue) SELECT * FROM json_each)"}));

TEST(LookAheadTablesTest, BothSchemasMayHaveATableOfThatName) {
  std::vector<std::string> rows[2];
  for (int on = 0; on < 2; ++on) {
    Database db(on != 0 ? "on" : "off");
    db.Run("CREATE VIRTUAL TABLE main.json_each USING queue");
    db.Run("CREATE VIRTUAL TABLE temp.json_each USING queue");
    rows[on] = db.Run(std::string("SELECT generate(body, ") + kOptions + ") FROM json_each");
    EXPECT_EQ(db.Foreseen(), 0);
  }
  EXPECT_EQ(rows[0].size(), size_t{kRows});
  EXPECT_EQ(rows[1], rows[0]);
}

TEST(LookAheadTablesTest, AHostsModuleInThePlaceOfAFunctionIsNotTheFunction) {
  static const sqlite3_module kLikeJsonEach = QueueModule<true>();
  std::vector<std::string> rows[2];
  for (int on = 0; on < 2; ++on) {
    Database db(on != 0 ? "on" : "off");
    ASSERT_EQ(sqlite3_create_module(db.get(), "json_each", &kLikeJsonEach, db.left()), SQLITE_OK);
    rows[on] = db.Run(std::string("SELECT generate(body, ") + kOptions + ") FROM json_each");
    EXPECT_EQ(db.Foreseen(), 0);
  }
  EXPECT_EQ(rows[0].size(), size_t{kRows});
  EXPECT_EQ(rows[1], rows[0]);
}

// What changes nothing is read ahead under any name, too.
TEST(LookAheadTablesTest, FunctionsOfTheirOwnRightAreForeseen) {
  for (const char* from :
       {"json_each((SELECT json_group_array(body) FROM docs)) AS queue",
        "(SELECT value AS body FROM main.json_each((SELECT json_group_array(body) FROM docs)))",
        "docs, json_tree('1') AS j", "docs AS json_each, lm_chunks(json_each.body)"}) {
    SCOPED_TRACE(from);
    std::vector<std::string> rows[2];
    for (int on = 0; on < 2; ++on) {
      Database db(on != 0 ? "on" : "off");
      const bool each = std::string(from).rfind("json_each", 0) == 0;
      const std::string prompt = std::string(from).find("lm_chunks") != std::string::npos
                                     ? "chunk"
                                     : (each ? "value" : "body");
      rows[on] = db.Run("SELECT generate(" + prompt + ", " + kOptions + ") FROM " + from);
      EXPECT_EQ(db.Foreseen(), on != 0 ? kRows - 2 : 0);
    }
    EXPECT_EQ(rows[0].size(), size_t{kRows});
    EXPECT_EQ(rows[1], rows[0]);
  }
}

// A temporary table in the function's way: the function is not recognised, and nothing is lost.
TEST(LookAheadTablesTest, ATableOfThatNameIsAnOrdinaryOne) {
  std::vector<std::string> rows[2];
  for (int on = 0; on < 2; ++on) {
    Database db(on != 0 ? "on" : "off");
    db.Run("CREATE TEMP TABLE json_each AS SELECT * FROM docs");
    rows[on] = db.Run(std::string("SELECT generate(body, ") + kOptions + ") FROM json_each");
    EXPECT_EQ(db.Foreseen(), on != 0 ? kRows - 2 : 0);
  }
  EXPECT_EQ(rows[0].size(), size_t{kRows});
  EXPECT_EQ(rows[1], rows[0]);
}

}  // namespace
