#include "extension/jobs/job_reach.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/status_macros.h"
#include "extension/batch/harmless_tables.h"
#include "extension/host/own_function.h"
#include "extension/host/statement.h"

namespace lm {
namespace {

absl::Status Denied(absl::string_view what) {
  return absl::PermissionDeniedError(absl::StrCat(
      what, ", which a job of a database in memory may not: it runs on your own connection"));
}

// SQLite's number of a database.
absl::StatusOr<int64_t> NumberOf(sqlite3* db, absl::string_view schema) {
  ASSIGN_OR_RETURN(
      Statement databases,
      Statement::Prepare(db, "SELECT seq FROM pragma_database_list WHERE name = ? COLLATE NOCASE"));
  ASSIGN_OR_RETURN(const bool found, databases.Bind(1, schema).Step());
  if (!found) return absl::NotFoundError(absl::StrCat("is of no database '", schema, "'"));
  return databases.Integer(0);
}

// `call`: name(number of arguments), as EXPLAIN has it.
absl::Status CheckFunction(sqlite3* db, absl::string_view call) {
  const size_t open = call.rfind('(');
  const absl::string_view name = call.substr(0, open);
  if (absl::StartsWith(name, "lm_token") || name == "lm_detokenize" || name == "lm_render" ||
      name == "lm_prompt" || name == "lm_field_order") {
    return absl::OkStatus();
  }
  int64_t arguments = 0;
  const bool read = open != absl::string_view::npos &&
                    absl::SimpleAtoi(absl::StripSuffix(call.substr(open + 1), ")"), &arguments);
  if (!read) return absl::InternalError("has a program that could not be read");
  ASSIGN_OR_RETURN(Statement list, Statement::Prepare(db,
                                                      "SELECT builtin, flags FROM "
                                                      "pragma_function_list WHERE name = ?1 AND "
                                                      "narg = ?2"));
  list.Bind(1, name).Bind(2, arguments);
  bool own = false;
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, list.Step());
    if (!row) break;
    own = IsOwnAndInnocuous(name, list.Integer(0) != 0, list.Integer(1));
    if (!own) break;
  }
  return own ? absl::OkStatus() : Denied(absl::StrCat("calls ", name, "()"));
}

}  // namespace

absl::Status CheckReach(sqlite3* db, absl::string_view schema, absl::string_view sql) {
  constexpr int kOpcode = 1, kP1 = 2, kP2 = 3, kP3 = 4, kP4 = 5;
  ASSIGN_OR_RETURN(const int64_t number, NumberOf(db, schema));
  ASSIGN_OR_RETURN(Statement program, Statement::Prepare(db, absl::StrCat("EXPLAIN ", sql)));
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, program.Step());
    if (!row) break;
    ASSIGN_OR_RETURN(const std::string opcode, program.Text(kOpcode));
    ASSIGN_OR_RETURN(const std::string operand, program.Text(kP4));
    if (opcode == "VUpdate") return Denied("writes to a virtual table");
    // Not all that is written is opened: DELETE FROM t empties it.
    const bool empties = opcode == "Transaction" && program.Integer(kP2) != 0;
    if ((empties && program.Integer(kP1) != number) ||
        (opcode == "OpenWrite" && program.Integer(kP3) != number)) {
      return Denied("writes to another database");
    }
    const bool reads = opcode == "OpenRead" || opcode == "ReopenIdx";
    if (reads && program.Integer(kP3) != number) return Denied("reads another database");
    const bool calls = absl::StrContains(opcode, "Func") || absl::StartsWith(opcode, "Agg");
    if (calls && !operand.empty()) RETURN_IF_ERROR(CheckFunction(db, operand));
  }
  ASSIGN_OR_RETURN(OpenedTables tables, TablesOpenedBy(program));
  if (tables.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(
      RemoveHarmless(db, {.asker = "sqlite-lm: job", .schema = schema}, &tables).status());
  if (tables.empty()) return absl::OkStatus();
  return Denied(
      "reads a virtual table that is neither json_each, json_tree, lm_chunks nor a full-text or "
      "R-tree table of that database");
}

}  // namespace lm
