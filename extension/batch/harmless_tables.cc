#include "extension/batch/harmless_tables.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "engine/base/status_macros.h"
#include "extension/host/sql_tokens.h"

namespace lm {
namespace {

// Virtual tables that change nothing when they are read: table-valued functions all, and as one
// knows them, by their columns. Those that are foreseen know that a shadow reads them.
struct HarmlessTable {
  absl::string_view call;
  absl::string_view columns;
  bool foreseen = false;
};
constexpr absl::string_view kJsonColumns = "key, value, type, atom, id, parent, fullkey, path";
constexpr HarmlessTable kHarmlessTables[] = {
    {"json_each('[]', '$')", kJsonColumns},
    {"json_tree('[]', '$')", kJsonColumns},
    {"lm_chunks('', 1, 0)", "n, chunk, start, tokens"},
    {"lm_classify_scores('', '[]')", "label, probability", true},
};

// Modules of tables that change nothing when they are read: SQLite's own, and vectors'; and those
// of ours that are foreseen.
constexpr absl::string_view kHarmlessModules[] = {"fts3",  "fts4",      "fts5", "fts5vocab",
                                                  "rtree", "rtree_i32", "vec0"};
constexpr absl::string_view kForeseenModules[] = {"lm_extract_each"};

bool IsAmong(absl::string_view name, absl::Span<const absl::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Takes a table from `tables`; the places that open it, where it is foreseen.
size_t Remove(const std::string& table, bool foreseen, OpenedTables* tables) {
  const auto found = tables->find(table);
  if (found == tables->end()) return 0;
  const size_t places = found->second;
  tables->erase(found);
  return foreseen ? places : 0;
}

using TableTokens = std::vector<SqlToken>;  // of CREATE VIRTUAL TABLE

// The module of CREATE VIRTUAL TABLE t USING module(...).
std::string ModuleOf(const TableTokens& tokens) {
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    if (tokens[i].Is("USING")) return absl::AsciiStrToLower(tokens[i + 1].Name());
  }
  return "";
}

// A full-text table may have the text of another one (content = other), which it reads when it is
// read: whether that is no ordinary table, but a view, say, which may call what it likes.
absl::StatusOr<bool> HasForeignContent(sqlite3* db, absl::string_view schema,
                                       const HarmlessRule& rule, const TableTokens& tokens) {
  for (size_t i = 0; i + 2 < tokens.size(); ++i) {
    if (!tokens[i].Names("content") || !tokens[i + 1].Is("=")) continue;
    const std::string name = tokens[i + 2].NameOrString();
    if (name.empty()) continue;  // it keeps no text
    ASSIGN_OR_RETURN(
        Statement find,
        Statement::Prepare(
            db, SelectBy(rule.asker, absl::StrCat("SELECT 1 FROM ", QuotedName(schema),
                                                  ".sqlite_master WHERE type = 'table' AND "
                                                  "rootpage <> 0 AND name = ? COLLATE NOCASE"))));
    ASSIGN_OR_RETURN(const bool found, find.Bind(1, name).Step());
    if (!found) return true;
  }
  return false;
}

// Of one database, those that its schema says are of a module that changes nothing. Places that
// open one that is foreseen are added to *num_sites, tables of fts5 to `full_text`.
absl::Status RemoveModulesOf(sqlite3* db, absl::string_view schema, const HarmlessRule& rule,
                             OpenedTables* tables, size_t* num_sites,
                             std::set<std::string>* full_text) {
  ASSIGN_OR_RETURN(
      Statement virtual_tables,
      Statement::Prepare(
          db, SelectBy(rule.asker,
                       absl::StrCat("SELECT name, sql FROM ", QuotedName(schema),
                                    ".sqlite_master WHERE type = 'table' AND rootpage = 0"))));
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, virtual_tables.Step());
    if (!row) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::string table, virtual_tables.Text(0));
    ASSIGN_OR_RETURN(const std::string sql, virtual_tables.Text(1));
    const TableTokens tokens = SqlTokens(sql);
    const std::string module = ModuleOf(tokens);
    const bool foreseen = rule.foreseen && IsAmong(module, kForeseenModules);
    if (!foreseen && !IsAmong(module, kHarmlessModules)) continue;
    if (absl::EqualsIgnoreCase(table, rule.target)) continue;
    ASSIGN_OR_RETURN(const bool foreign, HasForeignContent(db, schema, rule, tokens));
    if (foreign) continue;
    // The foreseen are functions of a text.
    absl::StatusOr<Statement> probe =
        Statement::Prepare(db, SelectBy(rule.asker,
                                        absl::StrCat("SELECT 1 FROM ", QuotedName(schema), ".",
                                                     QuotedName(table), foreseen ? "('')" : ""),
                                        kExplain));
    if (EndsStatementAround(probe.status())) return probe.status();
    if (!probe.ok()) continue;
    ASSIGN_OR_RETURN(const OpenedTables opened, TablesOpenedBy(*probe));
    for (const auto& [one, places] : opened) {
      if (full_text != nullptr && module == "fts5") full_text->insert(one);
      *num_sites += Remove(one, foreseen, tables);
    }
  }
}

}  // namespace

std::string MarkOf(absl::string_view asker) { return absl::StrCat("/* ", asker, " */ "); }

std::string SelectBy(absl::string_view asker, absl::string_view select, absl::string_view verb,
                     bool apart) {
  return absl::StrCat(MarkOf(asker), verb, "WITH \"", asker, "\" AS (", select, ") SELECT *",
                      apart ? ", (SELECT 1)" : "", " FROM \"", asker, "\"");
}

absl::StatusOr<OpenedTables> TablesOpenedBy(Statement& program) {
  constexpr int kOpcode = 1, kP4 = 5;  // columns of EXPLAIN
  OpenedTables tables;
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, program.Step());
    if (!row) return tables;
    ASSIGN_OR_RETURN(const std::string opcode, program.Text(kOpcode));
    if (opcode != "VOpen") continue;
    ASSIGN_OR_RETURN(std::string table, program.Text(kP4));
    if (!absl::StartsWith(table, "vtab:")) {
      return absl::FailedPreconditionError("its program could not be read");
    }
    ++tables[std::move(table)];
  }
}

absl::StatusOr<std::vector<std::string>> SchemasOf(sqlite3* db, absl::string_view asker) {
  // The argument is not looked at, but an authorizer sees it.
  ASSIGN_OR_RETURN(
      Statement list,
      Statement::Prepare(db, absl::StrCat(MarkOf(asker), "PRAGMA database_list('", asker, "')")));
  std::vector<std::string> schemas;
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, list.Step());
    if (!more) return schemas;
    ASSIGN_OR_RETURN(std::string schema, list.Text(1));
    schemas.push_back(std::move(schema));
  }
}

// A name or an alias in a statement's text says little: any table may have it. But what a program
// opens for main.json_each and for temp.json_each is one and the same only where neither schema has
// a table of that name, and both mean the function; and what has its address is the function,
// whatever the statement calls it.
absl::StatusOr<size_t> RemoveHarmless(sqlite3* db, const HarmlessRule& rule, OpenedTables* tables,
                                      std::set<std::string>* full_text) {
  size_t num_sites = 0;
  for (const auto& [call, columns, foreseen] : kHarmlessTables) {
    if (tables->empty()) return num_sites;
    if (foreseen && !rule.foreseen) continue;
    const std::string what = absl::StrCat("SELECT ", columns, " FROM ");
    absl::StatusOr<Statement> probe =
        Statement::Prepare(db, SelectBy(rule.asker, absl::StrCat(what, "main.", call), kExplain));
    absl::StatusOr<Statement> again =
        Statement::Prepare(db, SelectBy(rule.asker, absl::StrCat(what, "temp.", call), kExplain));
    if (!probe.ok() || !again.ok()) continue;
    ASSIGN_OR_RETURN(const OpenedTables table, TablesOpenedBy(*probe));
    ASSIGN_OR_RETURN(const OpenedTables same, TablesOpenedBy(*again));
    if (table.size() == 1 && table == same) {
      num_sites += Remove(table.begin()->first, foreseen, tables);
    }
  }
  if (tables->empty()) return num_sites;
  ASSIGN_OR_RETURN(const std::vector<std::string> schemas, SchemasOf(db, rule.asker));
  for (const std::string& schema : schemas) {
    if (tables->empty()) break;
    if (rule.schema.has_value() && !absl::EqualsIgnoreCase(schema, *rule.schema)) continue;
    RETURN_IF_ERROR(RemoveModulesOf(db, schema, rule, tables, &num_sites, full_text));
  }
  return num_sites;
}

}  // namespace lm
