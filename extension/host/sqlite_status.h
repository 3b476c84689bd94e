// absl::Status -> what SQLite reports.
#ifndef LM_EXTENSION_HOST_SQLITE_STATUS_H_
#define LM_EXTENSION_HOST_SQLITE_STATUS_H_

#include "absl/status/status.h"
#include "extension/host/sqlite_api.h"

namespace lm {

// Inside BEGIN, a function that ends with SQLITE_NOMEM, _IOERR or _FULL loses the user's whole
// transaction, and SQLITE_ERROR does not. So every failure of ours is an SQLITE_ERROR with a text,
// whatever its cause, except for Cancelled, which is SQLITE_INTERRUPT; interrupt.h alone makes it.
int SqliteCode(const absl::Status& status);

// Ends a function call with "<name>: <message>".
// REQUIRES: !status.ok().
void ResultError(sqlite3_context* context, const char* name, const absl::Status& status);

// Sets vtab->zErrMsg and returns the code; SQLITE_OK for an OK status.
int ReportTo(sqlite3_vtab* vtab, const char* name, const absl::Status& status);

// The same where there is no table yet (xConnect).
int ReportTo(char** message, const char* name, const absl::Status& status);

}  // namespace lm

#endif  // LM_EXTENSION_HOST_SQLITE_STATUS_H_
