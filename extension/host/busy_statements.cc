#include "extension/host/busy_statements.h"

namespace lm {

std::vector<sqlite3_stmt*> BusyStatements(sqlite3* db) {
  std::vector<sqlite3_stmt*> busy;
  for (sqlite3_stmt* s = sqlite3_next_stmt(db, nullptr); s != nullptr;
       s = sqlite3_next_stmt(db, s)) {
    if (sqlite3_stmt_busy(s) != 0 && sqlite3_sql(s) != nullptr) busy.push_back(s);
  }
  return busy;
}

}  // namespace lm
