// A connection of SQLite with lm's functions, for tests in C++: they are linked in, not loaded.
#ifndef LM_TESTS_EXTENSION_SQL_CONNECTION_H_
#define LM_TESTS_EXTENSION_SQL_CONNECTION_H_

#include <sqlite3.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "lm/sqlite.h"

namespace lm {

struct SqlError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// All throw SqlError. Used by one thread at a time, but for what SQLite allows of handle().
class SqlConnection {
 public:
  using Row = std::vector<std::string>;

  explicit SqlConnection(const std::string& path) {
    sqlite3* db = nullptr;
    const int opened = sqlite3_open(path.c_str(), &db);
    db_.reset(db);
    Check(opened);
    sqlite3_busy_timeout(db, 20'000);
    Check(sqlite3_lm_init(db, nullptr, nullptr) & 0xff);
  }
  SqlConnection(const SqlConnection&) = delete;
  SqlConnection& operator=(const SqlConnection&) = delete;

  // Of the last of the statements in `sql`, each of which has `parameters` bound; NULL is empty.
  std::vector<Row> Rows(const std::string& sql, const std::vector<std::string>& parameters = {}) {
    std::vector<Row> rows;
    const char* rest = sql.c_str();
    while (*rest != '\0') {
      sqlite3_stmt* statement = nullptr;
      Check(sqlite3_prepare_v2(handle(), rest, -1, &statement, &rest));
      for (size_t i = 0; i < parameters.size(); ++i) {
        sqlite3_bind_text(statement, static_cast<int>(i) + 1, parameters[i].c_str(), -1,
                          SQLITE_TRANSIENT);
      }
      rows.clear();
      int code;
      while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
        Row& row = rows.emplace_back();
        for (int i = 0; i < sqlite3_column_count(statement); ++i) {
          const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, i));
          row.push_back(text == nullptr ? "" : text);
        }
      }
      const std::string message = sqlite3_errmsg(handle());
      sqlite3_finalize(statement);
      if (code != SQLITE_DONE) throw SqlError(message);
    }
    return rows;
  }

  // The first values of all rows.
  Row Column(const std::string& sql, const std::vector<std::string>& parameters = {}) {
    Row column;
    for (const Row& row : Rows(sql, parameters)) column.push_back(row.at(0));
    return column;
  }

  // The first value of the last row; empty where there is none.
  std::string Value(const std::string& sql, const std::vector<std::string>& parameters = {}) {
    const Row column = Column(sql, parameters);
    return column.empty() ? "" : column.back();
  }

  void Set(const std::string& key, const std::string& value) {
    Rows("INSERT OR REPLACE INTO temp.lm_settings VALUES (?, ?)", {key, value});
  }

  sqlite3* handle() const { return db_.get(); }

 private:
  void Check(int code) {
    if (code != SQLITE_OK) throw SqlError(sqlite3_errmsg(handle()));
  }

  struct Close {
    void operator()(sqlite3* db) const { sqlite3_close(db); }
  };
  std::unique_ptr<sqlite3, Close> db_;
};

}  // namespace lm

#endif  // LM_TESTS_EXTENSION_SQL_CONNECTION_H_
