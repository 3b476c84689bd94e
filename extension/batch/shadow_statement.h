// The shadow of a statement (its text: shadow_text.h), prepared where it does nothing but to
// evaluate the statement's calls.
//
//   ASSIGN_OR_RETURN(auto shadows, ShadowsOf("UPDATE t SET y = generate(x) WHERE y IS NULL"));
//   ASSIGN_OR_RETURN(Shadow shadow, PrepareShadow(db, shadows[0], "t"));
#ifndef LM_EXTENSION_BATCH_SHADOW_STATEMENT_H_
#define LM_EXTENSION_BATCH_SHADOW_STATEMENT_H_

#include <cstddef>
#include <optional>
#include <string>

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
