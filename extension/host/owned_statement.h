// SQLite's objects with an owner.
#ifndef LM_EXTENSION_HOST_OWNED_STATEMENT_H_
#define LM_EXTENSION_HOST_OWNED_STATEMENT_H_

#include <memory>

#include "extension/host/sqlite_api.h"

namespace lm {

struct StatementDeleter {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using OwnedStatement = std::unique_ptr<sqlite3_stmt, StatementDeleter>;

struct ValueDeleter {
  void operator()(sqlite3_value* value) const { sqlite3_value_free(value); }
};
using OwnedValue = std::unique_ptr<sqlite3_value, ValueDeleter>;

}  // namespace lm

#endif  // LM_EXTENSION_HOST_OWNED_STATEMENT_H_
