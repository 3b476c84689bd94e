#include "extension/host/given_statement.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "engine/base/status_macros.h"
#include "extension/host/sql_tokens.h"

namespace lm {
namespace {

constexpr size_t kMostWordBytes = 40;  // of the text, in a message

absl::Status Refused(absl::string_view why) { return absl::InvalidArgumentError(why); }

// Prepares the text's only statement, if its first word is one of `words`.
absl::StatusOr<Statement> PrepareOnly(sqlite3* db, absl::string_view sql,
                                      absl::Span<const absl::string_view> words,
                                      absl::string_view kind) {
  // SQLite's text would end there.
  if (sql.find('\0') != absl::string_view::npos) return Refused("has a NUL character");
  const std::vector<SqlToken> tokens = SqlTokens(sql);
  if (tokens.empty()) return Refused("is empty");
  const bool known = std::any_of(words.begin(), words.end(),
                                 [&](absl::string_view word) { return tokens[0].Is(word); });
  if (!known) {
    return Refused(absl::StrCat("must be ", kind, ": it begins with ",
                                tokens[0].text.substr(0, kMostWordBytes)));
  }
  // The only virtual table of SQLite's own that writes when it is read (it runs ANALYZE).
  if (std::any_of(tokens.begin(), tokens.end(),
                  [](const SqlToken& token) { return token.Names("pragma_optimize"); })) {
    return Refused("may not read pragma_optimize: it writes");
  }
  absl::StatusOr<Statement> statement = Statement::Prepare(db, sql);
  if (absl::IsInvalidArgument(statement.status())) {
    return Refused(absl::StrCat("does not compile: ", statement.status().message()));
  }
  RETURN_IF_ERROR(statement.status());
  for (const SqlToken& token : SqlTokens(statement->tail())) {
    if (!token.Is(";")) return Refused("must be one statement");
  }
  return statement;
}

}  // namespace

absl::StatusOr<Statement> PrepareGivenSelect(sqlite3* db, absl::string_view sql) {
  ASSIGN_OR_RETURN(Statement statement,
                   PrepareOnly(db, sql, {"SELECT", "VALUES", "WITH"}, "a SELECT"));
  if (sqlite3_stmt_readonly(statement.get()) == 0) {
    return Refused("must be a SELECT: it may not write");
  }
  if (sqlite3_bind_parameter_count(statement.get()) > 0) {
    return Refused("must have no parameters: write their values into it (format('%Q', ...))");
  }
  return statement;
}

absl::StatusOr<Statement> PrepareSelectArgument(sqlite3* db, absl::string_view sql,
                                                absl::string_view name) {
  absl::StatusOr<Statement> statement = PrepareGivenSelect(db, sql);
  if (!absl::IsInvalidArgument(statement.status())) return statement;
  return Refused(absl::StrCat(name, " ", statement.status().message()));
}

absl::StatusOr<Statement> PrepareGivenChange(sqlite3* db, absl::string_view sql) {
  ASSIGN_OR_RETURN(Statement statement,
                   PrepareOnly(db, sql, {"INSERT", "REPLACE", "UPDATE", "DELETE", "WITH"},
                               "an INSERT, UPDATE or DELETE"));
  if (sqlite3_stmt_readonly(statement.get()) != 0) return Refused("changes nothing");
  return statement;
}

}  // namespace lm
