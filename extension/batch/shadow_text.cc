#include "extension/batch/shadow_text.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "extension/batch/read_order.h"
#include "extension/batch/shadow_functions.h"
#include "extension/host/sql_tokens.h"

namespace lm {
namespace {

using Tokens = std::vector<SqlToken>;
using Range = SqlRange;

bool CallsGenerate(const Tokens& tokens, Range range) {
  for (size_t i = range.begin; i + 1 < range.end; ++i) {
    if (!tokens[i + 1].Is("(")) continue;
    if (IsForeseen(absl::AsciiStrToLower(tokens[i].Name()))) return true;
  }
  return false;
}

// One assignment of SET, and what a SELECT evaluates in its stead.
struct Assignment {
  Range columns;
  Range value;

  std::string Expression(const Tokens& tokens) const {
    const absl::string_view text = TextOf(tokens, value);
    const bool row = tokens[columns.begin].Is("(") && tokens[value.begin].Is("(") &&
                     tokens[value.begin].match + 1 == value.end;
    if (!row) return std::string(text);
    const SqlToken& first = tokens[value.begin + 1];
    const bool query = first.Is("SELECT") || first.Is("WITH") || first.Is("VALUES");
    // (a, b) = (x, y) assigns to each its own; of a query's row, all columns are wanted for one
    // that is compared.
    return query ? absl::StrCat(text, " IS ", TextOf(tokens, columns))
                 : std::string(TextOf(tokens, {value.begin + 1, value.end - 1}));
  }
};

// SET a = ..., (b, c) = ...
std::vector<Assignment> AssignmentsIn(const Tokens& tokens, Range range) {
  std::vector<Assignment> found;
  size_t begin = range.begin;
  while (begin < range.end) {
    size_t end = begin, equals = range.end;
    const int depth = tokens[begin].depth;
    for (; end < range.end; ++end) {
      if (tokens[end].depth != depth) continue;
      if (tokens[end].Is(",")) break;
      if (tokens[end].Is("=") && equals == range.end) equals = end;
    }
    if (begin < equals && equals + 1 < end) found.push_back({{begin, equals}, {equals + 1, end}});
    begin = end + 1;
  }
  return found;
}

// The right sides that generate, or `all`.
std::vector<std::string> AssignedExpressions(const Tokens& tokens, Range range, bool all) {
  std::vector<std::string> expressions;
  for (const Assignment& assignment : AssignmentsIn(tokens, range)) {
    if (!all && !CallsGenerate(tokens, assignment.value)) continue;
    expressions.push_back(assignment.Expression(tokens));
  }
  return expressions;
}

std::string ListOr1(const std::vector<std::string>& expressions) {
  return expressions.empty() ? "1" : absl::StrJoin(expressions, ", ");
}

// The expressions of RETURNING that generate, where none of them reads what the statement assigns:
// that is not so yet where a shadow reads it.
std::vector<std::string> ReturnedExpressions(const Tokens& tokens, size_t returning,
                                             const std::vector<Assignment>& assignments) {
  const size_t end = FindWord(tokens, returning, {";"});
  std::vector<std::string> expressions;
  if (returning >= end || !CallsGenerate(tokens, {returning, end})) return expressions;
  std::vector<std::string> assigned;
  for (const Assignment& assignment : assignments) {
    for (size_t i = assignment.columns.begin; i < assignment.columns.end; ++i) {
      if (!tokens[i].Name().empty()) assigned.push_back(tokens[i].Name());
    }
  }
  size_t begin = returning + 1;
  while (begin < end) {
    size_t comma = begin;
    while (comma < end && !(tokens[comma].depth == 0 && tokens[comma].Is(","))) ++comma;
    const bool reads = std::any_of(
        tokens.begin() + begin, tokens.begin() + comma, [&assigned](const SqlToken& token) {
          return std::any_of(assigned.begin(), assigned.end(),
                             [&token](const std::string& name) { return token.Names(name); });
        });
    if (!reads && CallsGenerate(tokens, {begin, comma})) {
      expressions.emplace_back(TextOf(tokens, {begin, comma}));
    }
    begin = comma + 1;
  }
  return expressions;
}

// Those with what RETURNING says, too, and those without: it may name what they do not have.
void AddShadows(const std::vector<std::string>& expressions,
                const std::vector<std::string>& returned, absl::string_view before,
                absl::string_view after, std::vector<std::string>* shadows) {
  std::vector<std::string> all = expressions;
  all.insert(all.end(), returned.begin(), returned.end());
  shadows->push_back(absl::StrCat(before, "SELECT ", ListOr1(all), after));
  if (returned.empty()) return;
  shadows->push_back(absl::StrCat(before, "SELECT ", ListOr1(expressions), after));
}

// The table that an UPDATE or a DELETE names, [schema.]name [AS alias], and an [INDEXED BY index]
// that stands behind.
struct WrittenTable {
  Range name;
  Range named;  // with all that stands behind
};

WrittenTable WrittenTableIn(const Tokens& tokens, Range range) {
  const size_t indexed = FindWord(tokens, range.begin, {"INDEXED", "NOT"});
  return {{range.begin, std::min(indexed, range.end)}, range};
}

// Whether UPDATE or DELETE has an ORDER BY or a LIMIT: SQLite finds the rowids of such rows by a
// SELECT then, and comes to the rows in the order of these.
bool IsLimited(const Tokens& tokens, Range rest) {
  return FindWord(tokens, rest.begin, {"ORDER", "LIMIT"}) < rest.end;
}

// The FROM of a SELECT that comes to the rows of a table as a statement does that writes it, and
// what follows it in the statement: `rest`, WHERE and so on. Empty where a SELECT does so by
// itself, or cannot.
std::string FromInOrder(const Tokens& tokens, const WrittenTable& table, Range rest,
                        const ReadOrder& order) {
  const bool limited = IsLimited(tokens, rest);
  const bool told = limited || table.name.end < table.named.end;
  const absl::string_view index = told ? absl::string_view() : absl::string_view(order.index);
  const std::string from = absl::StrCat(" FROM ", TextOf(tokens, table.named), " ", index);
  if (!order.by_rowid) {
    return index.empty() ? "" : absl::StrCat(from, " ", TextOf(tokens, rest));
  }
  // Calls of a WHERE are made until there are as many rows as the LIMIT allows: it has to be seen.
  if (limited && CallsGenerate(tokens, rest)) return "";
  const std::string rowid = absl::StrCat(tokens[table.name.end - 1].text, "._rowid_");
  return absl::StrCat(" FROM ", TextOf(tokens, table.name), " NOT INDEXED WHERE ", rowid,
                      " IN (SELECT ", rowid, from, " ", TextOf(tokens, rest), ")");
}

std::vector<std::string> ShadowsOfUpdate(const Tokens& tokens, absl::string_view with,
                                         size_t update, const ReadOrder& order) {
  size_t table = update + 1;
  if (table + 1 < tokens.size() && tokens[table].Is("OR")) table += 2;
  const size_t set = FindWord(tokens, table, {"SET"});
  const size_t from = FindWord(tokens, set, {"FROM", "WHERE", "RETURNING", "ORDER", "LIMIT", ";"});
  const size_t where = FindWord(tokens, from, {"WHERE", "RETURNING", "ORDER", "LIMIT", ";"});
  const size_t end = FindWord(tokens, where, {"RETURNING", ";"});
  const Range assigned{std::min(set + 1, from), from};
  // What FROM or WITH generates is not evaluated unless it is read.
  const bool all = CallsGenerate(tokens, {from, where}) || CallsGenerate(tokens, {0, update});
  const std::vector<std::string> expressions = AssignedExpressions(tokens, assigned, all);
  const std::vector<std::string> returned =
      ReturnedExpressions(tokens, end, AssignmentsIn(tokens, assigned));
  std::string after = absl::StrCat(" FROM ", TextOf(tokens, {table, set}));
  if (from < where) absl::StrAppend(&after, ", ", TextOf(tokens, {from + 1, where}));
  absl::StrAppend(&after, " ", TextOf(tokens, {where, end}));
  std::vector<std::string> shadows;
  if (from < where) {
    // SQLite reads the rows by a SELECT of all that is assigned.
    AddShadows(AssignedExpressions(tokens, assigned, /*all=*/true), returned, with, after,
               &shadows);
    if (all) return shadows;
  } else {
    const std::string in_order =
        FromInOrder(tokens, WrittenTableIn(tokens, {table, set}), {where, end},
                    {order.index, order.by_rowid || IsLimited(tokens, {where, end})});
    if (!in_order.empty()) AddShadows(expressions, returned, with, in_order, &shadows);
  }
  AddShadows(expressions, returned, with, after, &shadows);
  return shadows;
}

// DELETE FROM t ...: all that it evaluates is its WHERE, in the order in which it reads.
std::vector<std::string> ShadowsOfDelete(const Tokens& tokens, absl::string_view with, size_t verb,
                                         const ReadOrder& order) {
  const size_t end = FindWord(tokens, verb, {"RETURNING", ";"});
  const size_t table = std::min(verb + 2, end);
  const size_t where = std::min(FindWord(tokens, table, {"WHERE", "ORDER", "LIMIT"}), end);
  const std::vector<std::string> returned = ReturnedExpressions(tokens, end, {});
  std::vector<std::string> shadows;
  const std::string in_order =
      FromInOrder(tokens, WrittenTableIn(tokens, {table, where}), {where, end}, {order.index});
  if (!in_order.empty()) AddShadows({}, returned, with, in_order, &shadows);
  AddShadows({}, returned, with, absl::StrCat(" ", TextOf(tokens, {verb + 1, end})), &shadows);
  return shadows;
}

// INSERT INTO t(a, b) SELECT ... ON CONFLICT(a) DO UPDATE SET b = generate(excluded.b): the new
// rows are those of a common table with the columns' names, and beside each is what it conflicts
// with. The first of two reads all columns of the new rows, as the statement does.
std::vector<std::string> ShadowsOfUpsert(const Tokens& tokens, absl::string_view with, size_t into,
                                         Range select) {
  const size_t on = FindWord(tokens, select.end, {"ON"});
  const size_t set = FindWord(tokens, on, {"SET"});
  const size_t where = FindWord(tokens, set, {"WHERE", "ON", "RETURNING", ";"});
  const size_t end = FindWord(tokens, where, {"ON", "RETURNING", ";"});
  const size_t columns = on + 2;  // ON CONFLICT (
  const bool known = on < set && set < end && tokens[columns].Is("(");
  if (!known || !CallsGenerate(tokens, {set, end})) return {};
  // The table's name, with its schema, and the alias by which the clause may know it.
  const size_t list = std::min(FindWord(tokens, into + 1, {"("}), select.begin);
  const size_t as = std::min(FindWord(tokens, into + 1, {"AS"}), list);
  const absl::string_view table = TextOf(tokens, {into + 1, as});
  const absl::string_view name = tokens[list - 1].text;
  const absl::string_view inserted =
      list < select.begin ? TextOf(tokens, {list + 1, std::min(tokens[list].match, tokens.size())})
                          : absl::string_view("*");
  std::string matches;
  for (size_t i = columns + 1; i < tokens[columns].match; i += 2) {
    const bool plain =
        !tokens[i].Name().empty() && (tokens[i + 1].Is(",") || tokens[i + 1].Is(")"));
    if (!plain) return {};
    absl::StrAppend(&matches, matches.empty() ? "" : " AND ", name, ".", tokens[i].text,
                    " = excluded.", tokens[i].text);
  }
  if (where < end) absl::StrAppend(&matches, " AND (", TextOf(tokens, {where + 1, end}), ")");
  std::vector<std::string> expressions;
  for (const std::string& e : AssignedExpressions(tokens, {set + 1, where}, /*all=*/false)) {
    expressions.push_back(absl::StrCat("(SELECT json_array(", e, ") FROM ",
                                       TextOf(tokens, {into + 1, list}), " WHERE ", matches, ")"));
  }
  const std::string rows = absl::StrCat("WITH excluded AS (SELECT ", inserted, " FROM ", table,
                                        " WHERE 0 UNION ALL SELECT * FROM (", with,
                                        TextOf(tokens, select), ")) SELECT ");
  const std::string updated = absl::StrCat(absl::StrJoin(expressions, ", "), " FROM excluded");
  std::vector<std::string> shadows = {absl::StrCat(rows, "excluded.*, ", updated)};
  if (!CallsGenerate(tokens, select)) shadows.push_back(absl::StrCat(rows, updated));
  return shadows;
}

}  // namespace

bool CallsGenerate(absl::string_view sql) {
  const Tokens tokens = SqlTokens(sql);
  return CallsGenerate(tokens, {0, tokens.size()});
}

bool HasLimit(absl::string_view sql) {
  const Tokens tokens = SqlTokens(sql);
  return std::any_of(tokens.begin(), tokens.end(),
                     [](const SqlToken& token) { return token.Is("LIMIT"); });
}

std::string TargetOf(absl::string_view sql) {
  const Tokens tokens = SqlTokens(sql);
  size_t name = FindWord(tokens, 0, {"UPDATE", "DELETE", "INTO", "SELECT", "CREATE"});
  if (name == tokens.size() || tokens[name].Is("SELECT") || tokens[name].Is("CREATE")) return "";
  if (++name + 1 < tokens.size() && tokens[name].Is("OR")) name += 2;
  if (name < tokens.size() && tokens[name].Is("FROM")) ++name;
  if (name + 2 < tokens.size() && tokens[name + 1].Is(".")) name += 2;
  return name < tokens.size() ? tokens[name].NameOrString() : "";
}

absl::StatusOr<std::vector<std::string>> ShadowsOf(absl::string_view sql, sqlite3* db) {
  const Tokens tokens = SqlTokens(sql);
  // WITH ... goes before the SELECT as it does before the statement.
  const size_t verb = FindWord(
      tokens, 0, {"SELECT", "VALUES", "INSERT", "REPLACE", "UPDATE", "DELETE", "CREATE", ";"});
  if (verb == tokens.size()) return absl::UnimplementedError("it is no statement with rows");
  const std::string with = verb > 0 ? absl::StrCat(TextOf(tokens, {0, verb}), " ") : std::string();
  const SqlToken& word = tokens[verb];
  if (word.Is("UPDATE") || word.Is("DELETE")) {
    absl::StatusOr<ReadOrder> order;
    if (db != nullptr) order = ReadOrderOf(db, kShadowAsker, sql, TargetOf(sql));
    if (EndsStatementAround(order.status())) return order.status();
    if (!order.ok()) order = ReadOrder();
    return word.Is("UPDATE") ? ShadowsOfUpdate(tokens, with, verb, *order)
                             : ShadowsOfDelete(tokens, with, verb, *order);
  }
  std::vector<std::string> shadows;
  size_t select = verb;
  if (!word.Is("SELECT") && !word.Is("VALUES")) {
    select = FindWord(tokens, verb + 1, {"SELECT", "VALUES", "WITH"});
    if (select == tokens.size()) return absl::UnimplementedError("it reads no rows");
  }
  const size_t end = select == verb ? FindWord(tokens, select, {";"})
                                    : FindWord(tokens, select, {"ON", "RETURNING", ";"});
  const size_t into = std::min(FindWord(tokens, verb, {"INTO"}), select);
  if (into < select) {
    shadows = ShadowsOfUpsert(tokens, with, into, {select, end});
  }
  shadows.push_back(absl::StrCat(with, TextOf(tokens, {select, end})));
  return shadows;
}

}  // namespace lm
