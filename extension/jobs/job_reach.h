// What a job may do where it must run on the user's own connection.
//
//   RETURN_IF_ERROR(CheckReach(db, "main", "UPDATE notes SET short = :value WHERE id = :id"));
//
// A job comes with a database, which a stranger may have made. Where it has a connection of its
// own, there is nothing there but the database and SQLite's own functions. A database in memory has
// only the user's, with its settings, its temporary and attached databases, and the functions of
// its host; so its program is looked at before it is run.
#ifndef LM_EXTENSION_JOBS_JOB_REACH_H_
#define LM_EXTENSION_JOBS_JOB_REACH_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "extension/host/sqlite_api.h"

namespace lm {

// PermissionDenied, in words that go on after the text's name, where `sql`, its triggers and views
// included, would write to anything but ordinary tables of the database `schema`, read anything but
// those and harmless virtual tables of it (harmless_tables.h), or call a function that is neither
// SQLite's own and innocuous nor one of ours that only looks at text.
absl::Status CheckReach(sqlite3* db, absl::string_view schema, absl::string_view sql);

}  // namespace lm

#endif  // LM_EXTENSION_JOBS_JOB_REACH_H_
