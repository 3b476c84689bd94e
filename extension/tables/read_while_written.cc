#include "extension/tables/read_while_written.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/batch/shadow_text.h"
#include "extension/host/sql_tokens.h"
#include "extension/host/statement.h"

namespace lm {
namespace {

using Tokens = std::vector<SqlToken>;

bool Name(const Tokens& tokens, absl::string_view name) {
  return std::any_of(tokens.begin(), tokens.end(), [name](const SqlToken& token) {
    return absl::EqualsIgnoreCase(token.NameOrString(), name);
  });
}

// Whether the tokens name a view, of any database of the connection, or the table has triggers.
absl::StatusOr<bool> LeadElsewhere(sqlite3* db, const Tokens& tokens, absl::string_view table) {
  ASSIGN_OR_RETURN(Statement databases,
                   Statement::Prepare(db, "SELECT name FROM pragma_database_list"));
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, databases.Step());
    if (!more) return false;
    ASSIGN_OR_RETURN(const std::string database, databases.Text(0));
    ASSIGN_OR_RETURN(
        Statement stored,
        Statement::Prepare(
            db, absl::StrCat("SELECT type = 'view', tbl_name FROM ", QuotedName(database),
                             ".sqlite_master WHERE type IN ('view', 'trigger')")));
    for (;;) {
      ASSIGN_OR_RETURN(const bool row, stored.Step());
      if (!row) break;
      ASSIGN_OR_RETURN(const std::string name, stored.Text(1));
      const bool is_view = stored.Integer(0) != 0;
      if (is_view ? Name(tokens, name) : absl::EqualsIgnoreCase(name, table)) return true;
    }
  }
}

}  // namespace

bool MayReadWhatIsWritten(sqlite3* db, absl::string_view select) {
  const Tokens tokens = SqlTokens(select);
  // One of ours that is given a SELECT in turn.
  const bool nested = std::any_of(tokens.begin(), tokens.end(), [](const SqlToken& token) {
    return absl::StartsWithIgnoreCase(token.Name(), "lm_");
  });
  const std::vector<sqlite3_stmt*> busy = BusyStatements(db);
  return std::any_of(busy.begin(), busy.end(), [&](sqlite3_stmt* statement) {
    if (sqlite3_stmt_readonly(statement) != 0) return false;
    const std::string target = TargetOf(sqlite3_sql(statement));
    if (target.empty()) return false;
    return nested || Name(tokens, target) || LeadElsewhere(db, tokens, target).value_or(true);
  });
}

}  // namespace lm
