#include "extension/host/ask_authorizer.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "engine/base/status_macros.h"
#include "extension/host/sql_tokens.h"
#include "extension/host/statement.h"

namespace lm {
namespace {

// What a statement does: to a table SQLITE_READ, _UPDATE (with a column), _INSERT or _DELETE; or
// _RECURSIVE, or _FUNCTION.
struct Action {
  int code;
  std::string table;
  std::string column;  // of a function, its name, as SQLite passes it

  bool operator<(const Action& other) const {
    return std::tie(code, table, column) < std::tie(other.code, other.table, other.column);
  }
};

struct Recorder {
  std::set<Action> actions;
  bool full = false;  // an action is missing, for want of memory
};

int Record(void* data, int code, const char* table, const char* column, const char* schema,
           const char*) noexcept {
  auto* recorder = static_cast<Recorder*>(data);
  const bool of_table = code == SQLITE_READ || code == SQLITE_UPDATE || code == SQLITE_INSERT ||
                        code == SQLITE_DELETE;
  const bool in_main = schema != nullptr && absl::string_view(schema) == "main";
  if (of_table ? !in_main : code != SQLITE_FUNCTION && code != SQLITE_RECURSIVE) return SQLITE_OK;
  // A table that is named and of which no column is read.
  if (code == SQLITE_READ && (column == nullptr || *column == '\0')) return SQLITE_OK;
  try {
    recorder->actions.insert(
        {code, of_table ? table : "", column != nullptr ? std::string(column) : ""});
    return SQLITE_OK;
  } catch (...) {
    recorder->full = true;
    return SQLITE_DENY;
  }
}

// All that the authorizer of `db` is asked while `sql` is compiled there.
absl::StatusOr<std::set<Action>> ActionsOf(sqlite3* db, const std::string& sql) {
  Recorder recorder;
  RETURN_IF_ERROR(StatusOf(db, sqlite3_set_authorizer(db, &Record, &recorder)));
  const absl::Status prepared = Statement::Prepare(db, sql).status();
  sqlite3_set_authorizer(db, nullptr, nullptr);
  if (recorder.full) return absl::ResourceExhaustedError("out of memory");
  RETURN_IF_ERROR(prepared);
  return std::move(recorder.actions);
}

absl::StatusOr<bool> IsTable(sqlite3* db, const std::string& name) {
  ASSIGN_OR_RETURN(
      Statement find,
      Statement::Prepare(db, "SELECT 1 FROM main.sqlite_master WHERE type = 'table' AND name = ?"));
  return find.Bind(1, name).Step();
}

// Whether the program of `sql` has one of the instructions. SQLITE_IGNORE leaves them out.
absl::StatusOr<bool> HasInstruction(sqlite3* db, const std::string& sql,
                                    absl::Span<const absl::string_view> opcodes) {
  constexpr int kOpcode = 1;
  ASSIGN_OR_RETURN(Statement program, Statement::Prepare(db, absl::StrCat("EXPLAIN ", sql)));
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, program.Step());
    if (!row) return false;
    ASSIGN_OR_RETURN(const std::string opcode, program.Text(kOpcode));
    if (std::find(opcodes.begin(), opcodes.end(), opcode) != opcodes.end()) return true;
  }
}

// Whether the user's connection does it: false where its authorizer leaves it out, PermissionDenied
// where it denies it.
absl::StatusOr<bool> IsDone(sqlite3* user, absl::string_view schema, const Action& action) {
  const std::string table = absl::StrCat(QuotedName(schema), ".", QuotedName(action.table));
  const std::string column = QuotedName(action.column);
  switch (action.code) {
    case SQLITE_READ:
      return HasInstruction(user, absl::StrCat("SELECT ", column, " FROM ", table),
                            {"Column", "VColumn", "Rowid", "IdxRowid"});
    case SQLITE_UPDATE:
      return HasInstruction(user, absl::StrCat("UPDATE ", table, " SET ", column, " = ?1"),
                            {"Variable"});
    case SQLITE_INSERT:
      return HasInstruction(user, absl::StrCat("INSERT INTO ", table, " DEFAULT VALUES"),
                            {"Insert", "IdxInsert", "VUpdate"});
    default:  // SQLITE_IGNORE does not keep from deleting
      RETURN_IF_ERROR(Statement::Prepare(user, absl::StrCat("DELETE FROM ", table)).status());
      return true;
  }
}

// A function or a recursion. By itself it may not compile, as window functions do not: that says
// nothing.
absl::Status AskForCall(sqlite3* user, sqlite3* own, const Action& action) {
  if (action.code == SQLITE_RECURSIVE) {
    constexpr char kRecursion[] =
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x FROM c) SELECT x FROM c";
    if (!absl::IsPermissionDenied(Statement::Prepare(user, kRecursion).status())) {
      return absl::OkStatus();
    }
    return absl::PermissionDeniedError(
        "uses a recursive table, which this connection's authorizer forbids");
  }
  constexpr int64_t kOfAny = 2;  // arguments, of a function that takes any number
  ASSIGN_OR_RETURN(
      Statement numbers,
      Statement::Prepare(own, "SELECT DISTINCT narg FROM pragma_function_list WHERE name = ?"));
  numbers.Bind(1, absl::AsciiStrToLower(action.column));
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, numbers.Step());
    if (!row) return absl::OkStatus();
    const int64_t number = numbers.Integer(0);
    const std::vector<absl::string_view> arguments(number < 0 ? kOfAny : number, "?1");
    const std::string call = absl::StrCat("SELECT ", QuotedName(action.column), "(",
                                          absl::StrJoin(arguments, ", "), ")");
    const absl::Status asked = Statement::Prepare(user, call).status();
    // SQLite says so in words alone.
    if (!absl::StartsWith(asked.message(), "not authorized")) continue;
    return absl::PermissionDeniedError(
        absl::StrCat("calls ", action.column, "(), which this connection's authorizer forbids"));
  }
}

// The statement as a whole, with its views and triggers. Only where it means the same tables to the
// user's connection: a name alone is of main there. False where it cannot be asked so, because it
// does not compile there: temp has a table of such a name, say, or a trigger that does not compile.
absl::StatusOr<bool> AskForAll(sqlite3* user, const std::string& sql) {
  const absl::Status asked = Statement::Prepare(user, sql).status();
  if (absl::IsPermissionDenied(asked)) {
    return absl::PermissionDeniedError(
        absl::StrCat("does what this connection's authorizer forbids: ", asked.message()));
  }
  if (absl::IsInvalidArgument(asked)) return false;
  RETURN_IF_ERROR(asked);
  return true;
}

}  // namespace

absl::Status AskAuthorizer(sqlite3* user, absl::string_view schema, sqlite3* own,
                           const std::string& sql) {
  ASSIGN_OR_RETURN(const std::set<Action> actions, ActionsOf(own, sql));
  bool as_a_whole = false;
  if (absl::EqualsIgnoreCase(schema, "main")) {
    ASSIGN_OR_RETURN(as_a_whole, AskForAll(user, sql));
  }
  for (const Action& action : actions) {
    if (action.code == SQLITE_FUNCTION || action.code == SQLITE_RECURSIVE) {
      if (!as_a_whole) RETURN_IF_ERROR(AskForCall(user, own, action));
      continue;
    }
    ASSIGN_OR_RETURN(const bool table, IsTable(own, action.table));
    if (!table && as_a_whole) continue;
    const absl::StatusOr<bool> done = IsDone(user, schema, action);
    const bool denied = absl::IsPermissionDenied(done.status());
    // By itself it may be denied where it is not as part of a view, a trigger or the statement; and
    // some tables cannot be written so.
    if (absl::IsInvalidArgument(done.status()) || (denied && as_a_whole)) continue;
    if (!denied) RETURN_IF_ERROR(done.status());
    // Of a view and the like it cannot be told that something is hidden.
    if (!denied && (*done || !table)) continue;
    return absl::PermissionDeniedError(
        absl::StrCat("uses ", action.table, action.column.empty() ? "" : ".", action.column,
                     ", which this connection's authorizer ", denied ? "forbids" : "hides"));
  }
  return absl::OkStatus();
}

absl::Status CheckMayAttach(sqlite3* db, const std::string& path) {
  if (sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, -1) == 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("'", path, "' may not be opened: SQLITE_LIMIT_ATTACHED is 0"));
  }
  // SQLite asks the authorizer while it compiles the statement. Where it answers SQLITE_IGNORE, the
  // program does nothing.
  const absl::Status denied =
      absl::PermissionDeniedError(absl::StrCat("'", path, "' may not be opened: not authorized"));
  const std::string sql =
      absl::StrCat("EXPLAIN ATTACH '", absl::StrReplaceAll(path, {{"'", "''"}}), "' AS lm_memo");
  absl::StatusOr<Statement> program = Statement::Prepare(db, sql);
  if (absl::IsPermissionDenied(program.status())) return denied;
  RETURN_IF_ERROR(program.status());
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, program->Step());
    if (!row) return denied;
    ASSIGN_OR_RETURN(const std::string operand, program->Text(5));
    if (absl::StrContains(operand, "sqlite_attach")) return absl::OkStatus();
  }
}

}  // namespace lm
