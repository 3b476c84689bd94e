// SQL that the user gives as a text: the argument of lm_query(), a job's query and its target.
//
//   ASSIGN_OR_RETURN(Statement select, PrepareGivenSelect(db, sql));  // or
//   ASSIGN_OR_RETURN(Statement change, PrepareGivenChange(db, sql));
//
// SQLite acts on some statements while it prepares them: PRAGMA foreign_keys = ON needs no step,
// nor does EXPLAIN PRAGMA. So the text's first word decides whether SQLite gets to see it at all,
// and of a text with several statements only the first is ever prepared.
//
// Errors are InvalidArgument, in words that go on after the text's name ("select_sql ...", "the
// job's query ..."): a text of another kind, one that does not compile, with a second statement.
// What they run on is the caller's to guard: a SELECT calls whatever functions the connection has.
#ifndef LM_EXTENSION_HOST_GIVEN_STATEMENT_H_
#define LM_EXTENSION_HOST_GIVEN_STATEMENT_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/host/sqlite_api.h"
#include "extension/host/statement.h"

namespace lm {

// One SELECT (VALUES, WITH ... SELECT) that only reads, with no parameters, which would stay
// unbound.
absl::StatusOr<Statement> PrepareGivenSelect(sqlite3* db, absl::string_view sql);

// The same of a function's argument, whose name the errors begin with.
absl::StatusOr<Statement> PrepareSelectArgument(sqlite3* db, absl::string_view sql,
                                                absl::string_view name);

// One INSERT, REPLACE, UPDATE or DELETE (WITH ... before it).
absl::StatusOr<Statement> PrepareGivenChange(sqlite3* db, absl::string_view sql);

}  // namespace lm

#endif  // LM_EXTENSION_HOST_GIVEN_STATEMENT_H_
