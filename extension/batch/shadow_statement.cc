#include "extension/batch/shadow_statement.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "engine/base/hash_map.h"
#include "engine/base/status_macros.h"
#include "extension/batch/bounded_recursion.h"
#include "extension/batch/harmless_tables.h"
#include "extension/batch/read_order.h"
#include "extension/host/own_function.h"
#include "extension/host/sql_tokens.h"

namespace lm {
namespace {

using Tokens = std::vector<SqlToken>;

// All that is prepared here says whose it is.
constexpr absl::string_view kAsker = "sqlite-lm: look-ahead";

// Ours that a shadow may call: the first know that they are called by one, the others change
// nothing.
constexpr absl::string_view kForeseen[] = {
    "generate",      "generate_json",      "lm_try",      "lm_classify", "lm_extract",
    "lm_if",         "lm_score",           "lm_embed",    "lm_rerank",   "lm_filter",
    "lm_similarity", "lm_classify_scores", "lm_summarize"};
// SQLite's that are the same all through a statement, although they are not marked so.
constexpr absl::string_view kConstant[] = {"current_timestamp", "current_date", "current_time"};
constexpr absl::string_view kHarmless[] = {"lm_token_count", "lm_tokenize", "lm_detokenize",
                                           "lm_render",      "lm_version",  "lm_prompt",
                                           "lm_field_order"};

// Those of fts5, for its tables alone.
constexpr absl::string_view kOfFullText[] = {"bm25", "highlight", "snippet"};

bool IsOneOf(absl::string_view name, absl::Span<const absl::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Half-open ranges of tokens, and the text from the first to the last of one.
struct Range {
  size_t begin = 0;
  size_t end = 0;
};

absl::string_view TextOf(const Tokens& tokens, Range range) {
  if (range.begin >= range.end) return "";
  const absl::string_view last = tokens[range.end - 1].text;
  const char* begin = tokens[range.begin].text.data();
  return {begin, static_cast<size_t>(last.data() + last.size() - begin)};
}

bool CallsGenerate(const Tokens& tokens, Range range) {
  for (size_t i = range.begin; i + 1 < range.end; ++i) {
    if (!tokens[i + 1].Is("(")) continue;
    for (absl::string_view name : kForeseen) {
      if (tokens[i].Names(name)) return true;
    }
  }
  return false;
}

// The first token from `from` on, outside of parentheses, that is one of the words; else the end.
size_t FindWord(const Tokens& tokens, size_t from, absl::Span<const absl::string_view> words) {
  for (size_t i = from; i < tokens.size(); ++i) {
    if (tokens[i].depth != 0) continue;
    for (absl::string_view word : words) {
      if (!tokens[i].Is(word)) continue;
      // IS [NOT] DISTINCT FROM is an operator.
      if (word == "FROM" && i > 0 && tokens[i - 1].Is("DISTINCT")) continue;
      // ON belongs to a join, unless it is ON CONFLICT.
      if (word == "ON" && (i + 1 == tokens.size() || !tokens[i + 1].Is("CONFLICT"))) continue;
      return i;
    }
  }
  return tokens.size();
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

bool IsShadow(absl::string_view sql) { return absl::StartsWith(sql, MarkOf(kAsker)); }

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
    if (db != nullptr) order = ReadOrderOf(db, kAsker, sql, TargetOf(sql));
    if (absl::IsCancelled(order.status())) return order.status();
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

namespace {

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

absl::Status Noticeable(absl::string_view why) { return absl::FailedPreconditionError(why); }

absl::StatusOr<Statement> Prepare(sqlite3* db, absl::string_view sql) {
  absl::StatusOr<Statement> statement = Statement::Prepare(db, sql);
  if (absl::IsCancelled(statement.status())) return statement;
  if (!statement.ok()) return Noticeable("what it reads could not be told from its text");
  return statement;
}

// Of what is told from its program.
template <typename T>
absl::StatusOr<T> Readable(absl::StatusOr<T> read) {
  if (read.ok() || absl::IsCancelled(read.status())) return read;
  return Noticeable("its program could not be read");
}

// The next row, if there is one.
absl::StatusOr<bool> Step(Statement& statement) { return Readable(statement.Step()); }

// The functions of a connection, read when the first one is asked for.
class FunctionList {
 public:
  explicit FunctionList(sqlite3* db) : db_(db) {}

  // `call` is what EXPLAIN says of a function: its name, and in parentheses how many arguments it
  // is defined for (-1: any number).
  absl::Status Check(absl::string_view call, bool aggregate) {
    const absl::string_view name = call.substr(0, call.rfind('('));
    if (IsOneOf(name, kForeseen) || IsOneOf(name, kHarmless)) return absl::OkStatus();
    RETURN_IF_ERROR(Read());
    const auto found = functions_.find(std::string(call));
    if (found != functions_.end() && (found->second.deterministic || aggregate) &&
        found->second.own) {
      return absl::OkStatus();
    }
    return Noticeable(
        absl::StrCat("it calls ", name, "(), which is not built in, deterministic and innocuous"));
  }

 private:
  struct Function {
    bool own = true;  // SQLite's, and innocuous
    bool deterministic = true;
  };

  absl::Status Read() {
    if (std::exchange(read_, true)) return absl::OkStatus();
    // The argument is not looked at.
    ASSIGN_OR_RETURN(
        Statement list,
        Prepare(db_, absl::StrCat(MarkOf(kAsker), "PRAGMA function_list('", kAsker, "')")));
    for (;;) {
      ASSIGN_OR_RETURN(const bool row, Step(list));
      if (!row) return absl::OkStatus();
      ASSIGN_OR_RETURN(const std::string name, list.Text(kFunctionName));
      Function& function = functions_[absl::StrCat(name, "(", list.Integer(kNumArgs), ")")];
      const int64_t flags = list.Integer(kFlags);
      // Aggregates are not marked as deterministic, although SQLite's own are.
      function.own = function.own && IsOwnAndInnocuous(name, list.Integer(kBuiltIn) != 0, flags);
      function.deterministic = function.deterministic &&
                               ((flags & SQLITE_DETERMINISTIC) != 0 || IsOneOf(name, kConstant));
    }
  }

  static constexpr int kFunctionName = 0, kBuiltIn = 1, kNumArgs = 4, kFlags = 5;

  sqlite3* const db_;
  bool read_ = false;
  HashMap<std::string, Function> functions_;  // by what EXPLAIN says of them
};

bool IsOwnCollation(absl::string_view name) {
  return name.empty() || name == "B" || name == "BINARY" || name == "NOCASE" || name == "RTRIM";
}

// The fourth operand of an instruction, where it has collations: k(2,B,-NOCASE) or NOCASE-8.
absl::Status CheckCollations(absl::string_view opcode, absl::string_view operand) {
  constexpr absl::string_view kComparing[] = {"Eq", "Ne", "Lt", "Le", "Gt", "Ge", "CollSeq"};
  if (opcode == "String8") return absl::OkStatus();
  std::vector<absl::string_view> names;
  size_t first = 0;
  if (absl::ConsumePrefix(&operand, "k(") && absl::ConsumeSuffix(&operand, ")")) {
    names = absl::StrSplit(operand, ',');
    first = 1;  // behind their number
  } else if (IsOneOf(opcode, kComparing)) {
    for (absl::string_view encoding : {"-8", "-16LE", "-16BE"}) {
      if (absl::ConsumeSuffix(&operand, encoding)) names = {operand};
    }
  }
  for (size_t i = first; i < names.size(); ++i) {
    absl::string_view name = names[i];
    absl::ConsumePrefix(&name, "-");   // descending
    absl::ConsumePrefix(&name, "N.");  // NULLS in the other place
    if (IsOwnCollation(name)) continue;
    return Noticeable(absl::StrCat("it uses the collation ", name, ", which is not built in"));
  }
  return absl::OkStatus();
}

// The calls of a program that matter.
struct ProgramCalls {
  size_t sites = 0;  // of what is foreseen
  // Loops that a LIMIT leaves, EXISTS's and a scalar subquery's among them, and in which there are
  // such sites.
  size_t left_early = 0;
  // Whether any loop is left early, with or without sites.
  bool may_stop = false;
  // All sites are in a loop that sorts, and is read to its end: of what is sorted a LIMIT keeps the
  // first rows.
  bool sorts_all = false;
  // Virtual tables whose rows bm25() and its sisters are asked about: theirs where these are
  // fts5's.
  std::set<std::string> ranked;
};

constexpr int64_t kMostRecursed = 250'000;  // rows of a recursive table: a quarter of a second

// Whether a statement asks bm25() and its sisters about nothing but columns: bm25(t), snippet(t,
// 0). What they say of a column is the say of its table, of all else that of a function of the
// host's that may have such a name.
bool RanksColumns(const Tokens& tokens) {
  bool ranks = false;
  for (size_t i = 0; i + 3 < tokens.size(); ++i) {
    const bool call = std::any_of(std::begin(kOfFullText), std::end(kOfFullText),
                                  [&](absl::string_view name) { return tokens[i].Names(name); });
    if (!call || !tokens[i + 1].Is("(")) continue;
    ranks = true;
    const bool column =
        !tokens[i + 2].Name().empty() && (tokens[i + 3].Is(",") || tokens[i + 3].Is(")"));
    if (!column) return false;
  }
  return ranks;
}

// Where in a program something is, by the numbers of its instructions.
class ProgramPlaces {
 public:
  void AddSite(int64_t at) { sites_.push_back(at); }
  void AddExit(int64_t at) { exits_.push_back(at); }
  void AddLoop(int64_t first, int64_t last) { parts_.push_back({first, last, /*loops=*/true}); }
  void AddSubroutine(int64_t first, int64_t last) { parts_.push_back({first, last}); }
  // The next row of a coroutine, and the jump back there: the loop of those who read it. What else
  // jumps back is the recursion's own loop.
  void AddYield(int64_t at) { yields_.insert(at); }
  void AddJump(int64_t from, int64_t to) {
    if (yields_.contains(to)) reading_.push_back({to, from, /*loops=*/true});
  }
  // Where a row is sorted if it is among the first so many.
  void AddSort(int64_t at) { sorts_.push_back(at); }

  // Exits of loops in which there are sites. That of (SELECT 1) is of no loop.
  size_t NumLeftEarly() const {
    return std::count_if(exits_.begin(), exits_.end(), [this](int64_t exit) {
      const Part* loop = LoopAround(exit);
      return loop != nullptr && std::any_of(sites_.begin(), sites_.end(),
                                            [loop](int64_t site) { return loop->Has(site); });
    });
  }

  bool LeavesLoops() const {
    std::vector<Part> parts = parts_;
    parts.insert(parts.end(), reading_.begin(), reading_.end());
    return std::any_of(exits_.begin(), exits_.end(),
                       [&](int64_t exit) { return LoopAround(exit, parts) != nullptr; });
  }

  bool SortsAll() const {
    return !sites_.empty() && std::any_of(sorts_.begin(), sorts_.end(), [this](int64_t sort) {
      const Part* loop = LoopAround(sort);
      return loop != nullptr && std::all_of(sites_.begin(), sites_.end(),
                                            [loop](int64_t site) { return loop->Has(site); });
    });
  }

 private:
  struct Part {
    int64_t first;
    int64_t last;
    bool loops = false;

    bool Has(int64_t at) const { return first <= at && at <= last; }
  };

  // The innermost part around an instruction; null where that is no loop.
  const Part* LoopAround(int64_t at) const { return LoopAround(at, parts_); }
  static const Part* LoopAround(int64_t at, const std::vector<Part>& parts) {
    const Part* innermost = nullptr;
    for (const Part& part : parts) {
      if (!part.Has(at)) continue;
      if (innermost == nullptr || part.first > innermost->first) innermost = &part;
    }
    return innermost != nullptr && innermost->loops ? innermost : nullptr;
  }

  std::vector<int64_t> sites_;
  std::vector<int64_t> exits_;
  std::vector<int64_t> sorts_;
  std::vector<Part> parts_;
  std::set<int64_t> yields_;
  std::vector<Part> reading_;  // loops that read coroutines
};

// All functions and collations of the program are checked, but, where it `ranks`, those of
// full-text tables.
absl::StatusOr<ProgramCalls> CallsOf(Statement& program, FunctionList* functions, bool ranks) {
  constexpr int kAddress = 0, kOpcode = 1, kP1 = 2, kP2 = 3, kP3 = 4, kP4 = 5;  // of EXPLAIN
  ProgramCalls calls;
  ProgramPlaces places;
  std::map<int64_t, std::string> tables;  // virtual ones, by their cursors
  // The instruction before, where it reads a column of a virtual table: whose, and the register.
  std::string read_of;
  int64_t read = 0;
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, Step(program));
    if (!row) {
      calls.left_early = places.NumLeftEarly();
      calls.may_stop = places.LeavesLoops();
      calls.sorts_all = places.SortsAll();
      return calls;
    }
    const int64_t address = program.Integer(kAddress);
    ASSIGN_OR_RETURN(const std::string opcode, program.Text(kOpcode));
    ASSIGN_OR_RETURN(const std::string operand, program.Text(kP4));
    const std::string table = std::exchange(read_of, "");
    if (opcode == "DecrJumpZero") places.AddExit(address);
    if (opcode == "Yield") places.AddYield(address);
    if (opcode == "Goto") places.AddJump(address, program.Integer(kP2));
    if (opcode == "IfNotZero") places.AddSort(address);
    if (opcode == "Next" || opcode == "Prev" || opcode == "VNext") {
      places.AddLoop(program.Integer(kP2), address);
    } else if (opcode == "Return" && program.Integer(kP2) > 0) {
      places.AddSubroutine(program.Integer(kP2), address);
    }
    if (opcode == "VOpen") tables[program.Integer(kP1)] = operand;
    if (opcode == "VColumn") {
      read_of = tables[program.Integer(kP1)];
      read = program.Integer(kP3);
    }
    if (absl::StrContains(opcode, "Func") || absl::StartsWith(opcode, "Agg")) {
      if (operand.empty()) continue;
      if (operand.rfind('(') == std::string::npos)
        return Noticeable("its program could not be read");
      const std::string name = operand.substr(0, operand.rfind('('));
      if (IsOneOf(name, kForeseen)) {
        ++calls.sites;
        places.AddSite(address);
      }
      if (ranks && !table.empty() && IsOneOf(name, kOfFullText) && program.Integer(kP2) == read) {
        calls.ranked.insert(table);
        continue;
      }
      RETURN_IF_ERROR(functions->Check(operand, absl::StartsWith(opcode, "Agg")));
    } else {
      RETURN_IF_ERROR(CheckCollations(opcode, operand));
    }
  }
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
                   Prepare(db, SelectBy(kAsker, select, "EXPLAIN QUERY PLAN ", apart)));
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, Step(plan));
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
  ASSIGN_OR_RETURN(const std::vector<std::string> schemas, Readable(SchemasOf(db, kAsker)));
  for (const std::string& schema : schemas) {
    const std::string of_schema = absl::StrCat(QuotedName(schema), ".");
    ASSIGN_OR_RETURN(
        Statement views,
        Prepare(db, SelectBy(kAsker, absl::StrCat("SELECT name FROM ", of_schema,
                                                  "sqlite_master WHERE type = 'view'"))));
    for (;;) {
      ASSIGN_OR_RETURN(const bool row, Step(views));
      if (!row) break;
      ASSIGN_OR_RETURN(const std::string view, views.Text(0));
      const bool named = std::any_of(tokens.begin(), tokens.end(), [&](const SqlToken& token) {
        return absl::EqualsIgnoreCase(token.NameOrString(), view);
      });
      if (!named) continue;
      const absl::StatusOr<bool> in_view =
          Recurses(db, absl::StrCat("SELECT * FROM ", of_schema, QuotedName(view)), false);
      if (absl::IsCancelled(in_view.status())) return in_view;
      if (!in_view.ok() || *in_view) return true;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<Shadow> PrepareShadow(sqlite3* db, const std::string& sql,
                                     absl::string_view target) {
  const BoundedRecursions bounded = WithBoundedRecursions(sql, kMostRecursed);
  const std::string& select = bounded.sql;
  Shadow shadow;
  FunctionList functions(db);
  const Tokens tokens = SqlTokens(select);
  const bool apart = IsApart(tokens);
  ASSIGN_OR_RETURN(Statement program, Prepare(db, SelectBy(kAsker, select, kExplain, apart)));
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
  ASSIGN_OR_RETURN(shadow.statement, Prepare(db, SelectBy(kAsker, select, "", apart)));
  if (limited) shadow.limit = LimitOf(tokens);
  if (sqlite3_stmt_readonly(shadow.statement.get()) == 0)
    return Noticeable("it writes while it reads");
  ASSIGN_OR_RETURN(OpenedTables virtual_tables, Readable(TablesOpenedBy(program)));
  if (!virtual_tables.empty()) {
    const HarmlessRule rule{.asker = kAsker, .foreseen = true, .target = target};
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
