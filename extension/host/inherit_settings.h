// What a connection of ours that runs a user's SQL takes over from the user's own: the one rule for
// all of them.
//
//   RETURN_IF_ERROR(InheritSettings(user, "main", own));
//
// The same statement is to do the same on both. So ours has the user's foreign keys, triggers,
// checks, limits and case_sensitive_like, and how carefully the file is written; and it trusts the
// file less than the user may: DEFENSIVE is on, TRUSTED_SCHEMA, writable schemas and
// load_extension() are off, because the SQL comes with the file. What cannot be taken over:
// functions, collations, hooks, attached and temporary databases, max_page_count (to ask for it
// takes a lock on the user's side), and the authorizer (ask_authorizer.h).
#ifndef LM_EXTENSION_HOST_INHERIT_SETTINGS_H_
#define LM_EXTENSION_HOST_INHERIT_SETTINGS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "extension/host/sqlite_api.h"

namespace lm {

// `schema` is the user's name for the database that is "main" of `own`. FailedPrecondition where
// `user` is set to write nothing (PRAGMA query_only), or cannot be asked.
// REQUIRES: `own` has run no statement yet.
absl::Status InheritSettings(sqlite3* user, absl::string_view schema, sqlite3* own);

}  // namespace lm

#endif  // LM_EXTENSION_HOST_INHERIT_SETTINGS_H_
