// Whether a SELECT may read what the statement around it writes, row by row.
#ifndef LM_EXTENSION_TABLES_READ_WHILE_WRITTEN_H_
#define LM_EXTENSION_TABLES_READ_WHILE_WRITTEN_H_

#include "absl/strings/string_view.h"
#include "extension/host/sqlite_api.h"

namespace lm {

// Of a SELECT that is read while statements of `db` run: it names a table that one of them writes
// to, or may come to one by a view, by a trigger, or by a SELECT within its text. True also where
// that cannot be found out.
bool MayReadWhatIsWritten(sqlite3* db, absl::string_view select);

}  // namespace lm

#endif  // LM_EXTENSION_TABLES_READ_WHILE_WRITTEN_H_
