#include "extension/batch/shadow_statement.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/batch/bounded_recursion.h"
#include "extension/batch/harmless_tables.h"
#include "extension/batch/noticeable.h"
#include "extension/batch/program_calls.h"
#include "extension/batch/shadow_functions.h"
#include "extension/batch/shadow_text.h"
#include "extension/host/sql_tokens.h"

namespace lm {
namespace {

using Tokens = std::vector<SqlToken>;

constexpr int64_t kMostRecursed = 250'000;  // rows of a recursive table: a quarter of a second

// Of LIMIT 5, LIMIT 5 OFFSET 2 and LIMIT 2, 5: the rows that are read at most.
std::optional<size_t> LimitOf(const Tokens& tokens) {
  const size_t limit = FindWord(tokens, 0, {"LIMIT"});
  size_t rows = 0, sum = 0;
  for (size_t i = limit + 1; i < tokens.size(); i += 2) {
    if (!absl::SimpleAtoi(tokens[i].text, &rows)) return std::nullopt;
    sum += rows;
    const bool more =
        i + 1 < tokens.size() && (tokens[i + 1].Is(",") || tokens[i + 1].Is("OFFSET"));
    if (!more) return sum;
  }
  return std::nullopt;
}

absl::StatusOr<Statement> Prepare(sqlite3* db, absl::string_view sql) {
  absl::StatusOr<Statement> statement = Statement::Prepare(db, sql);
  if (EndsStatementAround(statement.status())) return statement;
  if (!statement.ok()) return Noticeable("what it reads could not be told from its text");
  return statement;
}

// Whether a SELECT is to be kept apart from the one around it: a sorted one, and one whose sorted
// subqueries SQLite keeps apart, because its result has functions or subqueries, as it is written.
bool IsApart(const Tokens& tokens) {
  constexpr absl::string_view kNoFunctions[] = {"AND",  "AS",   "BETWEEN", "CASE", "CAST",
                                                "ELSE", "IN",   "IS",      "NOT",  "OR",
                                                "OVER", "THEN", "WHEN",    "ALL",  "DISTINCT"};
  const size_t select = FindWord(tokens, 0, {"SELECT"});
  const size_t end = FindWord(tokens, select, {"FROM", "WHERE", ";"});
  for (size_t i = select + 1; i < end; ++i) {
    if (tokens[i].Is("SELECT") || tokens[i].Is("LIKE") || tokens[i].Is("GLOB")) return true;
    if (tokens[i].Is("-") && i + 1 < end && tokens[i + 1].Is(">")) return true;
    if (!tokens[i].Is("(") || tokens[i - 1].Name().empty() || i == select + 1) continue;
    const bool keyword =
        std::any_of(std::begin(kNoFunctions), std::end(kNoFunctions),
                    [&](absl::string_view word) { return tokens[i - 1].Is(word); });
    if (!keyword) return true;
  }
  return FindWord(tokens, 0, {"ORDER"}) < tokens.size();
}

// Whether a SELECT has recursions, be they of views that it reads.
absl::StatusOr<bool> Recurses(sqlite3* db, absl::string_view select, bool apart) {
  constexpr int kDetail = 3;  // of EXPLAIN QUERY PLAN
  ASSIGN_OR_RETURN(Statement plan,
                   Prepare(db, SelectBy(kShadowAsker, select, "EXPLAIN QUERY PLAN ", apart)));
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, Readable(plan.Step()));
    if (!row) return false;
    ASSIGN_OR_RETURN(const std::string detail, plan.Text(kDetail));
    if (detail == "RECURSIVE STEP") return true;
  }
}

// Whether one of the views that the text may name has a recursion: that has no LIMIT of ours.
absl::StatusOr<bool> MayRecurseInViews(sqlite3* db, const std::string& select, const Tokens& tokens,
                                       bool apart) {
  ASSIGN_OR_RETURN(const bool recurses, Recurses(db, select, apart));
  if (!recurses) return false;
  ASSIGN_OR_RETURN(const std::vector<std::string> schemas, Readable(SchemasOf(db, kShadowAsker)));
  for (const std::string& schema : schemas) {
    const std::string of_schema = absl::StrCat(QuotedName(schema), ".");
    ASSIGN_OR_RETURN(
        Statement views,
        Prepare(db, SelectBy(kShadowAsker, absl::StrCat("SELECT name FROM ", of_schema,
                                                        "sqlite_master WHERE type = 'view'"))));
    for (;;) {
      ASSIGN_OR_RETURN(const bool row, Readable(views.Step()));
      if (!row) break;
      ASSIGN_OR_RETURN(const std::string view, views.Text(0));
      const bool named = std::any_of(tokens.begin(), tokens.end(), [&](const SqlToken& token) {
        return absl::EqualsIgnoreCase(token.NameOrString(), view);
      });
      if (!named) continue;
      const absl::StatusOr<bool> in_view =
          Recurses(db, absl::StrCat("SELECT * FROM ", of_schema, QuotedName(view)), false);
      if (EndsStatementAround(in_view.status())) return in_view;
      if (!in_view.ok() || *in_view) return true;
    }
  }
  return false;
}

}  // namespace

bool IsShadow(absl::string_view sql) { return absl::StartsWith(sql, MarkOf(kShadowAsker)); }

absl::StatusOr<Shadow> PrepareShadow(sqlite3* db, const std::string& sql,
                                     absl::string_view target) {
  const BoundedRecursions bounded = WithBoundedRecursions(sql, kMostRecursed);
  const std::string& select = bounded.sql;
  Shadow shadow;
  ShadowFunctions functions(db, kShadowAsker);
  const Tokens tokens = SqlTokens(select);
  const bool apart = IsApart(tokens);
  ASSIGN_OR_RETURN(Statement program, Prepare(db, SelectBy(kShadowAsker, select, kExplain, apart)));
  ASSIGN_OR_RETURN(const ProgramCalls calls, CallsOf(program, &functions, RanksColumns(tokens)));
  shadow.num_sites = calls.sites;
  if (calls.may_stop) {
    ASSIGN_OR_RETURN(const bool in_views, MayRecurseInViews(db, select, tokens, apart));
    if (in_views || !bounded.all_end) {
      return Noticeable("it may stop in the midst of a recursion, whose end is not to be seen");
    }
  }
  const bool limited = FindWord(tokens, 0, {"LIMIT"}) < tokens.size() && !calls.sorts_all;
  shadow.leaves_loops = calls.left_early > (limited ? 1 : 0);
  ASSIGN_OR_RETURN(shadow.statement, Prepare(db, SelectBy(kShadowAsker, select, "", apart)));
  if (limited) shadow.limit = LimitOf(tokens);
  if (sqlite3_stmt_readonly(shadow.statement.get()) == 0)
    return Noticeable("it writes while it reads");
  ASSIGN_OR_RETURN(OpenedTables virtual_tables, Readable(TablesOpenedBy(program)));
  if (!virtual_tables.empty()) {
    const HarmlessRule rule{.asker = kShadowAsker, .foreseen = true, .target = target};
    std::set<std::string> full_text;
    ASSIGN_OR_RETURN(const size_t sites,
                     Readable(RemoveHarmless(db, rule, &virtual_tables, &full_text)));
    shadow.num_sites += sites;
    if (!std::includes(full_text.begin(), full_text.end(), calls.ranked.begin(),
                       calls.ranked.end())) {
      return Noticeable("it calls a function of a virtual table");
    }
  }
  if (shadow.num_sites == 0) return Noticeable("a trigger or a view makes its calls");
  if (!virtual_tables.empty()) return Noticeable("it reads a virtual table");
  return shadow;
}

}  // namespace lm
