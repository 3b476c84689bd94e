// The statements of a connection that are in the middle of a run. SQLite does not tell a function
// which of them calls it; where only one comes into question, that is the one.
//
//   for (sqlite3_stmt* statement : BusyStatements(db))
//   RETURN_IF_ERROR(Look(sqlite3_sql(statement)));
#ifndef LM_EXTENSION_HOST_BUSY_STATEMENTS_H_
#define LM_EXTENSION_HOST_BUSY_STATEMENTS_H_

#include <vector>

#include "extension/host/sqlite_api.h"

namespace lm {

// Only those that have a text. REQUIRES: called on the thread that uses the connection.
std::vector<sqlite3_stmt*> BusyStatements(sqlite3* db);

}  // namespace lm

#endif  // LM_EXTENSION_HOST_BUSY_STATEMENTS_H_
