// What the program of a SELECT calls, and where in its loops: read from EXPLAIN's instructions.
//
//   ShadowFunctions functions(db, asker);
//   ASSIGN_OR_RETURN(ProgramCalls calls, CallsOf(program, &functions, RanksColumns(tokens)));
#ifndef LM_EXTENSION_BATCH_PROGRAM_CALLS_H_
#define LM_EXTENSION_BATCH_PROGRAM_CALLS_H_

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "extension/batch/shadow_functions.h"
#include "extension/host/sql_tokens.h"
#include "extension/host/statement.h"

namespace lm {

// Those that matter.
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

// Whether a statement asks bm25() and its sisters about nothing but columns: bm25(t), snippet(t,
// 0). What they say of a column is the say of its table, of all else that of a function of the
// host's that may have such a name.
bool RanksColumns(const std::vector<SqlToken>& tokens);

// `program` is an EXPLAIN. All its functions are checked by `functions`, but, where it `ranks`,
// those of full-text tables; its collations must be SQLite's own. FailedPrecondition, with a clause
// that says why, where something of it is not allowed or cannot be read.
absl::StatusOr<ProgramCalls> CallsOf(Statement& program, ShadowFunctions* functions, bool ranks);

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_PROGRAM_CALLS_H_
