// The text of a statement's shadow: a SELECT that reads the rows the statement reads and evaluates
// the same calls of generate() and its sisters, in the same order.
//
//   ASSIGN_OR_RETURN(auto shadows, ShadowsOf("UPDATE t SET y = generate(x) WHERE y IS NULL"));
//   // SELECT generate(x) FROM t WHERE y IS NULL
#ifndef LM_EXTENSION_BATCH_SHADOW_TEXT_H_
#define LM_EXTENSION_BATCH_SHADOW_TEXT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/host/sqlite_api.h"

namespace lm {

// All that is prepared for shadows says whose it is (SelectBy, harmless_tables.h).
inline constexpr absl::string_view kShadowAsker = "sqlite-lm: look-ahead";

// The calls that a shadow is made for.
bool CallsGenerate(absl::string_view sql);

// Whether a LIMIT, of the statement or of a part of it, says how many rows there are to be.
bool HasLimit(absl::string_view sql);

// The table that a statement writes, without its schema; empty where it writes none.
std::string TargetOf(absl::string_view sql);

// A SELECT is its own shadow; INSERT, CREATE TABLE AS, UPDATE and DELETE have one, or several, of
// which the first that can be prepared is the best: with the calls of RETURNING and DO UPDATE, and
// without. Where the connection is given on which an UPDATE or a DELETE runs, its best ones come to
// the rows in the order in which it does (read_order.h). Unimplemented, with a clause that says
// why, for others. They need not be valid SQL: PrepareShadow (shadow_statement.h) tells.
absl::StatusOr<std::vector<std::string>> ShadowsOf(absl::string_view sql, sqlite3* db = nullptr);

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_SHADOW_TEXT_H_
