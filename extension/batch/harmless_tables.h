// Which virtual tables a program may read without anything coming of it.
//
//   ASSIGN_OR_RETURN(OpenedTables tables, TablesOpenedBy(program));   // of EXPLAIN SELECT ...
//   ASSIGN_OR_RETURN(size_t sites, RemoveHarmless(db, {.asker = "sqlite-lm: job"}, &tables));
//   if (!tables.empty()) ...                                          // it reads others, too
//
// Those are the functions json_each, json_tree and lm_chunks (by any name, told apart as objects),
// and tables of SQLite's full-text and R-tree modules (or vec0), as a schema has them, unless their
// text is that of a view. A host that puts a module of its own in the place of one of these, or a
// function of its own in the place of fts5's bm25, highlight or snippet, must keep it as harmless.
#ifndef LM_EXTENSION_BATCH_HARMLESS_TABLES_H_
#define LM_EXTENSION_BATCH_HARMLESS_TABLES_H_

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/host/statement.h"

namespace lm {

// The virtual tables that a program opens, each by the address of its object in the connection, and
// in how many places. They are distinct as long as the program lives, which keeps them open.
using OpenedTables = std::map<std::string, size_t>;

// `program` is an EXPLAIN. FailedPrecondition where it cannot be read.
absl::StatusOr<OpenedTables> TablesOpenedBy(Statement& program);

// A SELECT of ours that says which part of us reads: to a host that traces its connection by a
// comment, to its authorizer by `asker`, as the name of the view that reads. `verb` is nothing, or
// kExplain. `apart`: neither a sorted SELECT nor its sorted subqueries become one with the SELECT
// around them, in which SQLite makes the calls of their results before it sorts, or a second time
// behind.
inline constexpr absl::string_view kExplain = "EXPLAIN ";
std::string SelectBy(absl::string_view asker, absl::string_view select, absl::string_view verb = "",
                     bool apart = false);
// The comment, which such a statement begins with.
std::string MarkOf(absl::string_view asker);

struct HarmlessRule {
  absl::string_view asker;
  // Whether our tables that ask the model are harmless, too: a shadow's reader makes them wait.
  bool foreseen = false;
  // The table that the statement writes is not harmless: it may keep what is new until it is read.
  // Without its schema; empty: the statement writes none.
  absl::string_view target = "";
  // The database whose tables are; nullopt: all of them.
  std::optional<absl::string_view> schema = {};
};

// The databases of a connection, by their names.
absl::StatusOr<std::vector<std::string>> SchemasOf(sqlite3* db, absl::string_view asker);

// Takes from `tables` those that change nothing: the number of places that open one which is
// foreseen. Those of fts5 are added to `full_text`, where it is given. SQLite's errors.
absl::StatusOr<size_t> RemoveHarmless(sqlite3* db, const HarmlessRule& rule, OpenedTables* tables,
                                      std::set<std::string>* full_text = nullptr);

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_HARMLESS_TABLES_H_
