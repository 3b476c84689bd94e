// Whether a function is called by SQL that this connection was given, and not by SQL that stands in
// a database file.
//
// SQLITE_DIRECTONLY keeps functions out of the views, triggers, indexes, defaults and generated
// columns of a file. Of CHECK constraints SQLite keeps only deterministic ones out: any other may
// stand in the constraint of a stranger's table, and PRAGMA quick_check would call it.
#ifndef LM_EXTENSION_BINDING_DIRECT_CALL_H_
#define LM_EXTENSION_BINDING_DIRECT_CALL_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "extension/host/sqlite_api.h"

namespace lm {

// PermissionDenied unless a statement that runs on `db`, or a view or trigger of temp, calls
// `function` by its name. (A constraint that calls what the statement calls itself is not told
// apart; and a statement that was prepared the old way, whose text SQLite did not keep, may.)
absl::Status CheckIsDirectCall(sqlite3* db, absl::string_view function);

}  // namespace lm

#endif  // LM_EXTENSION_BINDING_DIRECT_CALL_H_
