// A SELECT given as a text (given_statement.h), run on the same connection.
//
//   ASSIGN_OR_RETURN(ReadOnlySelect select, ReadOnlySelect::Prepare(db, sql, "select_sql"));
//   for (;;) {
//     ASSIGN_OR_RETURN(bool row, select.Step());
//     if (!row) break;
//     Use(select.column(0));
//   }
#ifndef LM_EXTENSION_HOST_READ_ONLY_SELECT_H_
#define LM_EXTENSION_HOST_READ_ONLY_SELECT_H_

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/host/sqlite_api.h"
#include "extension/host/statement.h"

namespace lm {

// Movable; finalizes its statement when it goes.
class ReadOnlySelect {
 public:
  // PrepareGivenSelect's errors; InvalidArgument begins with `what`.
  static absl::StatusOr<ReadOnlySelect> Prepare(sqlite3* db, absl::string_view sql,
                                                absl::string_view what);

  int num_columns() const { return sqlite3_column_count(statement_.get()); }

  // Goes to the next row; false where there is none. Cancelled on an interrupt; any other failure
  // of the statement is Aborted with its own words.
  absl::StatusOr<bool> Step();

  // A value of the row, until the next Step. REQUIRES: 0 <= i < num_columns(); Step gave true.
  sqlite3_value* column(int i) const { return statement_.Value(i); }

 private:
  explicit ReadOnlySelect(Statement statement) : statement_(std::move(statement)) {}

  Statement statement_;
};

}  // namespace lm

#endif  // LM_EXTENSION_HOST_READ_ONLY_SELECT_H_
