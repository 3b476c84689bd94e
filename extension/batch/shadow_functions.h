// The functions that a shadow (shadow_statement.h) may call: those of ours that look-ahead
// foresees, others of ours that change nothing, and what is SQLite's own, deterministic and
// innocuous.
//
//   ShadowFunctions functions(db, "sqlite-lm: look-ahead");
//   RETURN_IF_ERROR(functions.Check("upper(1)", /*aggregate=*/false));
#ifndef LM_EXTENSION_BATCH_SHADOW_FUNCTIONS_H_
#define LM_EXTENSION_BATCH_SHADOW_FUNCTIONS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/base/hash_map.h"
#include "extension/host/sqlite_api.h"

namespace lm {

// generate() and its sisters, in lower case: they know that they are called by a shadow.
bool IsForeseen(absl::string_view name);

class ShadowFunctions {
 public:
  ShadowFunctions(sqlite3* db, absl::string_view asker) : db_(db), asker_(asker) {}

  // `call` is what EXPLAIN says of a function: its name, and in parentheses how many arguments it
  // is defined for (-1: any number). FailedPrecondition where a shadow may not call it. The
  // connection's functions are read when the first is asked for that is not ours.
  absl::Status Check(absl::string_view call, bool aggregate);

 private:
  struct Function {
    bool own = true;  // SQLite's, and innocuous
    bool deterministic = true;
  };

  absl::Status Read();

  sqlite3* const db_;
  const std::string asker_;
  bool read_ = false;
  HashMap<std::string, Function> functions_;  // by what EXPLAIN says of them
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_SHADOW_FUNCTIONS_H_
