// The shadow of a statement: a SELECT that reads the rows the statement reads and evaluates the
// same calls of generate() and its sisters, in the same order, and does nothing else.
//
//   ASSIGN_OR_RETURN(auto shadows, ShadowsOf("UPDATE t SET y = generate(x) WHERE y IS NULL"));
//   // SELECT generate(x) FROM t WHERE y IS NULL
//   ASSIGN_OR_RETURN(Shadow shadow, PrepareShadow(db, shadows[0], "t"));
#ifndef LM_EXTENSION_BATCH_SHADOW_STATEMENT_H_
#define LM_EXTENSION_BATCH_SHADOW_STATEMENT_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/host/statement.h"

namespace lm {

struct Shadow {
  Statement statement;
  size_t num_sites = 0;         // places in its program that make calls it is made for
  std::optional<size_t> limit;  // of its rows, where its text says so and that ends its calls
  // Whether such calls decide which of them come next, because one is enough: WHERE EXISTS (...).
  bool leaves_loops = false;
};

// The calls that a shadow is made for.
bool CallsGenerate(absl::string_view sql);

// Whether a LIMIT, of the statement or of a part of it, says how many rows there are to be.
bool HasLimit(absl::string_view sql);

// A SELECT is its own shadow; INSERT, CREATE TABLE AS, UPDATE and DELETE have one, or several, of
// which the first that can be prepared is the best: with the calls of RETURNING and DO UPDATE, and
// without. Where the connection is given on which an UPDATE or a DELETE runs, its best ones come to
// the rows in the order in which it does (read_order.h). Unimplemented, with a clause that says
// why, for others. They need not be valid SQL: PrepareShadow tells.
absl::StatusOr<std::vector<std::string>> ShadowsOf(absl::string_view sql, sqlite3* db = nullptr);

// The table that a statement writes, without its schema; empty where it writes none.
std::string TargetOf(absl::string_view sql);

// Prepares a shadow of a statement that writes `target` if running it cannot be noticed: it must
// only read, and call nothing but what is ours (generate() and others that ask the model one thing)
// or built in, deterministic and innocuous; its virtual tables must be harmless
// (harmless_tables.h), its collations SQLite's own. All that is read from its bytecode.
// FailedPrecondition, with a clause that says why, otherwise.
absl::StatusOr<Shadow> PrepareShadow(sqlite3* db, const std::string& sql, absl::string_view target);

// Whether a statement of the connection is a shadow.
bool IsShadow(absl::string_view sql);

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_SHADOW_STATEMENT_H_
