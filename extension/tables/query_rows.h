// QueryRows: the rows of a SELECT that the user gives as a text, and that may do nothing but read.
//
//   ASSIGN_OR_RETURN(QueryRows rows, QueryRows::Prepare(db, "SELECT id, body FROM notes"));
//   for (;;) {
//     ASSIGN_OR_RETURN(std::optional<QueryRow> row, rows.Next());
//     if (!row.has_value()) break;
//   }
#ifndef LM_EXTENSION_TABLES_QUERY_ROWS_H_
#define LM_EXTENSION_TABLES_QUERY_ROWS_H_

#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/host/sqlite_value.h"
#include "extension/host/statement.h"

namespace lm {

struct QueryRow {
  OwnedValue id;
  // As TextOf() reads them; an error is the row's.
  absl::StatusOr<std::optional<std::string>> prompt = std::nullopt;
  absl::StatusOr<std::optional<std::string>> system = std::nullopt;
};

// The statement lives, and holds its read lock, as long as this object or until it has no more
// rows.
class QueryRows {
 public:
  // InvalidArgument for what is not one SELECT (or WITH, VALUES) of two or three columns without
  // parameters, and for one that could write.
  static absl::StatusOr<QueryRows> Prepare(sqlite3* db, const std::string& sql);
  // The same of an argument of that name, which has two columns: id and a text.
  static absl::StatusOr<QueryRows> PrepareTexts(sqlite3* db, const std::string& sql,
                                                absl::string_view name);

  // nullopt where there are no more. Cancelled on an interrupt.
  absl::StatusOr<std::optional<QueryRow>> Next();

 private:
  QueryRows(Statement select, const char* text_name)
      : text_name_(text_name), select_(std::move(select)) {}

  const char* text_name_;            // what errors call the second column
  std::optional<Statement> select_;  // while it may have more rows
};

}  // namespace lm

#endif  // LM_EXTENSION_TABLES_QUERY_ROWS_H_
