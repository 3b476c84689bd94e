// An authorizer (sqlite3_set_authorizer) belongs to one connection: it can neither be read nor
// copied to another. But it can be asked, by compiling there what is to be run elsewhere.
//
//   RETURN_IF_ERROR(AskAuthorizer(user, "main", own, "SELECT id, body FROM notes"));
//
// Errors are in words that go on after the text's name, as given_statement.h has them.
#ifndef LM_EXTENSION_HOST_ASK_AUTHORIZER_H_
#define LM_EXTENSION_HOST_ASK_AUTHORIZER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "extension/host/sqlite_api.h"

namespace lm {

// OK where `user` may do all that `sql` does on `own`, whose "main" is the database that `user`
// calls `schema`. PermissionDenied where its authorizer denies something (SQLITE_DENY) or would
// silently leave it out (SQLITE_IGNORE for a column or a table); InvalidArgument where `own` cannot
// compile it. Where `user` cannot, as its temp has other tables of these names, it is asked for
// each table, column and function by itself. Nothing of it is run. An authorizer that answers
// SQLITE_IGNORE for one of SQLite's own functions, or that judges a statement by more than what it
// is asked, cannot be followed.
absl::Status AskAuthorizer(sqlite3* user, absl::string_view schema, sqlite3* own,
                           const std::string& sql);

// OK where `db` may ATTACH the file: what a setting or a function opens on its behalf is held to
// the same authorizer and limit. PermissionDenied otherwise. Nothing is opened.
absl::Status CheckMayAttach(sqlite3* db, const std::string& path);

}  // namespace lm

#endif  // LM_EXTENSION_HOST_ASK_AUTHORIZER_H_
