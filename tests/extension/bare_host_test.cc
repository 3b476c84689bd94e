// A SQLite that was built without some of its parts leaves holes in the table of routines that it
// hands to lm0.so: bare_host_test lm0.so MODEL.gguf
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

// The declarations of the table, without the macros that send every call through it.
#define SQLITE_CORE 1
#include <sqlite3ext.h>

namespace {

using Init = int (*)(sqlite3*, char**, const sqlite3_api_routines*);

Init lm_init = nullptr;
// A newer SQLite's table is longer than these headers know; lm0.so reads one entry more.
struct Table {
  sqlite3_api_routines known;
  void (*next)();
} bare;

// What the SQLITE_OMIT_ options of hosts in use take away.
int KeepBareTable(sqlite3*, char**, const sqlite3_api_routines* api) {
  const bool longer = sqlite3_libversion_number() > SQLITE_VERSION_NUMBER;
  std::memcpy(&bare, api, longer ? sizeof bare : sizeof bare.known);
  bare.known.progress_handler = nullptr;      // PROGRESS_CALLBACK
  bare.known.enable_shared_cache = nullptr;   // SHARED_CACHE
  bare.known.expired = nullptr;               // DEPRECATED
  bare.known.global_recover = nullptr;        // DEPRECATED
  bare.known.column_database_name = nullptr;  // no COLUMN_METADATA
  bare.known.column_table_name = nullptr;     // no COLUMN_METADATA
  bare.known.column_origin_name = nullptr;    // no COLUMN_METADATA
  bare.known.unlock_notify = nullptr;         // no UNLOCK_NOTIFY
  bare.known.normalized_sql = nullptr;        // no NORMALIZE
  return SQLITE_OK;
}

class BareHostTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::path(testing::TempDir()) / "bare_host_test.db";
    Remove();
    ASSERT_EQ(sqlite3_open(path_.c_str(), &db_), SQLITE_OK);
    char* message = nullptr;
    ASSERT_EQ(lm_init(db_, &message, &bare.known) & 0xff, SQLITE_OK) << message;
  }
  void TearDown() override {
    EXPECT_EQ(sqlite3_close(db_), SQLITE_OK);
    Remove();
  }

  // All values of all rows.
  std::string Run(const std::string& sql) {
    std::string values;
    char* message = nullptr;
    const auto append = [](void* all, int count, char** row, char**) {
      for (int i = 0; i < count; ++i) {
        *static_cast<std::string*>(all) += row[i] == nullptr ? "NULL" : row[i];
      }
      return 0;
    };
    if (sqlite3_exec(db_, sql.c_str(), append, &values, &message) != SQLITE_OK) {
      values = message;
      sqlite3_free(message);
    }
    return values;
  }

 private:
  void Remove() {
    for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
      std::filesystem::remove(path_.string() + suffix);
    }
  }

  std::filesystem::path path_;
  sqlite3* db_ = nullptr;
};

TEST_F(BareHostTest, RunsJobsWithoutAProgressHandler) {
  Run("CREATE TABLE notes(id INTEGER PRIMARY KEY, body, y);"
      "INSERT INTO notes(body) VALUES ('one'), ('two'), ('three');"
      "INSERT INTO lm_jobs(name, query, target, options) VALUES ('fill', 'SELECT id, body FROM "
      "notes',"
      " 'UPDATE notes SET y = :value WHERE id = :id', '{\"max_tokens\":4}')");
  EXPECT_EQ(Run("SELECT max(done) FROM lm_run('fill')"), "3");
  EXPECT_EQ(Run("SELECT count(*) FROM notes WHERE y IS NOT NULL"), "3");
}

TEST_F(BareHostTest, AnswersAndForesees) {
  const std::string answers =
      Run("WITH n(i) AS (VALUES (1), (2), (3), (4), (5)) "
          "SELECT count(generate('row ' || i, NULL, '{\"max_tokens\":4}')) FROM n");
  EXPECT_EQ(answers, "5");
  EXPECT_EQ(Run("SELECT count(*) > 0 FROM lm_stats"), "1");
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 3 || setenv("LM_MODEL", argv[2], 1) != 0) return 2;
  void* library = dlopen(argv[1], RTLD_NOW);
  if (library == nullptr) {
    std::fputs(dlerror(), stderr);
    return 2;
  }
  lm_init = reinterpret_cast<Init>(dlsym(library, "sqlite3_lm_init"));
  // SQLite calls it with its table when a connection is opened.
  sqlite3_auto_extension(reinterpret_cast<void (*)()>(KeepBareTable));
  sqlite3* any = nullptr;
  if (lm_init == nullptr || sqlite3_open(":memory:", &any) != SQLITE_OK) return 2;
  sqlite3_close(any);
  sqlite3_reset_auto_extension();
  return RUN_ALL_TESTS();
}
