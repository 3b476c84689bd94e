#include "extension/batch/shadow_statement.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "engine/base/status_macros.h"
#include "extension/host/sql_tokens.h"

namespace lm {
namespace {

using Tokens = std::vector<SqlToken>;

// The comment is for those who trace their connection, and for IsShadow.
constexpr absl::string_view kMark = "/* sqlite-lm: look-ahead */ ";

// Ours that a shadow may call: the first know that they are called by one, the others change
// nothing.
constexpr absl::string_view kForeseen[] = {"generate",   "generate_json", "lm_try",   "lm_classify",
                                           "lm_extract", "lm_if",         "lm_score", "lm_embed"};
constexpr absl::string_view kHarmless[] = {"lm_token_count", "lm_tokenize", "lm_detokenize",
                                           "lm_render", "lm_version"};

// Virtual tables that change nothing when they are read: table-valued functions all, and as one
// knows them, by their columns.
struct HarmlessTable {
  absl::string_view call;
  absl::string_view columns;
};
constexpr absl::string_view kJsonColumns = "key, value, type, atom, id, parent, fullkey, path";
constexpr HarmlessTable kHarmlessTables[] = {
    {"json_each('[]', '$')", kJsonColumns},
    {"json_tree('[]', '$')", kJsonColumns},
    {"lm_chunks('', 1, 0)", "n, chunk, start, tokens"},
};

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

// The right sides of SET a = ..., b = ... that generate.
std::string GeneratingExpressions(const Tokens& tokens, Range assignments) {
  std::vector<absl::string_view> expressions;
  size_t begin = assignments.begin;
  while (begin < assignments.end) {
    size_t end = begin, equals = assignments.end;
    for (; end < assignments.end; ++end) {
      if (tokens[end].depth != 0) continue;
      if (tokens[end].Is(",")) break;
      if (tokens[end].Is("=") && equals == assignments.end) equals = end;
    }
    const Range expression{std::min(equals + 1, end), end};
    if (CallsGenerate(tokens, expression)) expressions.push_back(TextOf(tokens, expression));
    begin = end + 1;
  }
  if (expressions.empty()) return "1";
  std::string list;
  for (absl::string_view e : expressions) absl::StrAppend(&list, list.empty() ? "" : ", ", e);
  return list;
}

std::string ShadowOfUpdate(const Tokens& tokens, absl::string_view with, size_t update) {
  size_t table = update + 1;
  if (table + 1 < tokens.size() && tokens[table].Is("OR")) table += 2;
  const size_t set = FindWord(tokens, table, {"SET"});
  const size_t from = FindWord(tokens, set, {"FROM", "WHERE", "RETURNING", "ORDER", "LIMIT", ";"});
  const size_t where = FindWord(tokens, from, {"WHERE", "RETURNING", "ORDER", "LIMIT", ";"});
  const size_t end = FindWord(tokens, where, {"RETURNING", ";"});
  std::string shadow =
      absl::StrCat(with, "SELECT ", GeneratingExpressions(tokens, {std::min(set + 1, from), from}),
                   " FROM ", TextOf(tokens, {table, set}));
  if (from < where) absl::StrAppend(&shadow, ", ", TextOf(tokens, {from + 1, where}));
  return absl::StrCat(shadow, " ", TextOf(tokens, {where, end}));
}

}  // namespace

bool CallsGenerate(absl::string_view sql) {
  const Tokens tokens = SqlTokens(sql);
  return CallsGenerate(tokens, {0, tokens.size()});
}

bool IsShadow(absl::string_view sql) { return absl::StartsWith(sql, kMark); }

absl::StatusOr<std::string> ShadowOf(absl::string_view sql) {
  const Tokens tokens = SqlTokens(sql);
  // WITH ... goes before the SELECT as it does before the statement.
  const size_t verb = FindWord(
      tokens, 0, {"SELECT", "VALUES", "INSERT", "REPLACE", "UPDATE", "DELETE", "CREATE", ";"});
  if (verb == tokens.size()) return absl::UnimplementedError("it is no statement with rows");
  const std::string with = verb > 0 ? absl::StrCat(TextOf(tokens, {0, verb}), " ") : std::string();
  const SqlToken& word = tokens[verb];
  if (word.Is("UPDATE")) return absl::StrCat(kMark, ShadowOfUpdate(tokens, with, verb));
  if (word.Is("DELETE")) {
    const size_t end = FindWord(tokens, verb, {"RETURNING", ";"});
    return absl::StrCat(kMark, with, "SELECT 1 ", TextOf(tokens, {verb + 1, end}));
  }
  size_t select = verb;
  if (!word.Is("SELECT") && !word.Is("VALUES")) {
    select = FindWord(tokens, verb + 1, {"SELECT", "VALUES", "WITH"});
    if (select == tokens.size()) return absl::UnimplementedError("it reads no rows");
  }
  const size_t end = select == verb ? FindWord(tokens, select, {";"})
                                    : FindWord(tokens, select, {"ON", "RETURNING", ";"});
  return absl::StrCat(kMark, with, TextOf(tokens, {select, end}));
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

// The next row, if there is one.
absl::StatusOr<bool> Step(Statement& statement) {
  absl::StatusOr<bool> row = statement.Step();
  if (absl::IsCancelled(row.status())) return row;
  if (!row.ok()) return Noticeable("its program could not be read");
  return row;
}

// `call` is what EXPLAIN says of a function: its name, and in parentheses how many arguments it is
// defined for (-1: any number).
absl::Status CheckFunction(Statement& list, absl::string_view call, bool aggregate) {
  const size_t open = call.rfind('(');
  if (open == absl::string_view::npos) return Noticeable("its program could not be read");
  const absl::string_view name = call.substr(0, open);
  if (IsOneOf(name, kForeseen) || IsOneOf(name, kHarmless)) return absl::OkStatus();
  int num_args = 0;
  if (!absl::SimpleAtoi(absl::StripSuffix(call.substr(name.size() + 1), ")"), &num_args)) {
    return Noticeable("its program could not be read");
  }
  list.Bind(1, name).Bind(2, num_args);
  int found = 0;
  bool good = true;
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, Step(list));
    if (!row) break;
    ++found;
    const int64_t flags = list.Integer(1);
    // The list says the contrary of what is so of the JSON functions; aggregates are not marked as
    // deterministic, although SQLite's own are.
    const bool innocuous = (flags & SQLITE_INNOCUOUS) != 0 || absl::StartsWith(name, "json");
    const bool deterministic = (flags & SQLITE_DETERMINISTIC) != 0 || aggregate;
    good = good && list.Integer(0) != 0 && innocuous && deterministic;
  }
  if (found > 0 && good) return absl::OkStatus();
  return Noticeable(
      absl::StrCat("it calls ", name, "(), which is not built in, deterministic and innocuous"));
}

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

constexpr int kOpcode = 1, kP4 = 5;  // columns of EXPLAIN

// The virtual tables that a program opens, each by the address of its object in the connection.
// They are distinct as long as the program lives, which keeps them open.
absl::StatusOr<std::set<std::string>> OpenedTables(Statement& program) {
  std::set<std::string> tables;
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, Step(program));
    if (!row) return tables;
    ASSIGN_OR_RETURN(const std::string opcode, program.Text(kOpcode));
    if (opcode != "VOpen") continue;
    ASSIGN_OR_RETURN(std::string table, program.Text(kP4));
    if (!absl::StartsWith(table, "vtab:")) return Noticeable("its program could not be read");
    tables.insert(std::move(table));
  }
}

// Takes from `tables` those that change nothing. A name or an alias in the statement's text says
// little: any table may have it. But what a program opens for main.json_each and for temp.json_each
// is one and the same only where neither schema has a table of that name, and both mean the
// function; and what has its address is the function, whatever the statement calls it.
absl::Status RemoveHarmless(sqlite3* db, std::set<std::string>* tables) {
  for (const auto& [call, columns] : kHarmlessTables) {
    absl::StatusOr<Statement> probe =
        Prepare(db, absl::StrCat("EXPLAIN SELECT ", columns, " FROM main.", call));
    absl::StatusOr<Statement> again =
        Prepare(db, absl::StrCat("EXPLAIN SELECT ", columns, " FROM temp.", call));
    if (!probe.ok() || !again.ok()) continue;
    ASSIGN_OR_RETURN(const std::set<std::string> table, OpenedTables(*probe));
    ASSIGN_OR_RETURN(const std::set<std::string> same, OpenedTables(*again));
    if (table.size() == 1 && table == same) tables->erase(*table.begin());
    if (tables->empty()) break;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Shadow> PrepareShadow(sqlite3* db, const std::string& sql) {
  Shadow shadow;
  ASSIGN_OR_RETURN(shadow.statement, Prepare(db, sql));
  shadow.limit = LimitOf(SqlTokens(sql));
  if (sqlite3_stmt_readonly(shadow.statement.get()) == 0)
    return Noticeable("it writes while it reads");
  ASSIGN_OR_RETURN(Statement program, Prepare(db, absl::StrCat("EXPLAIN ", sql)));
  ASSIGN_OR_RETURN(Statement list,
                   Prepare(db,
                           "SELECT builtin, flags FROM pragma_function_list WHERE name = ?1 "
                           "AND narg = ?2"));
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, Step(program));
    if (!row) break;
    ASSIGN_OR_RETURN(const std::string opcode, program.Text(kOpcode));
    ASSIGN_OR_RETURN(const std::string operand, program.Text(kP4));
    if (absl::StrContains(opcode, "Func") || absl::StartsWith(opcode, "Agg")) {
      if (operand.empty()) continue;
      shadow.num_sites += IsOneOf(operand.substr(0, operand.rfind('(')), kForeseen);
      RETURN_IF_ERROR(CheckFunction(list, operand, absl::StartsWith(opcode, "Agg")));
    } else {
      RETURN_IF_ERROR(CheckCollations(opcode, operand));
    }
  }
  ASSIGN_OR_RETURN(std::set<std::string> virtual_tables, OpenedTables(program));
  if (!virtual_tables.empty()) RETURN_IF_ERROR(RemoveHarmless(db, &virtual_tables));
  if (!virtual_tables.empty()) return Noticeable("it reads a virtual table");
  return shadow;
}

}  // namespace lm
