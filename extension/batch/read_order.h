// The order in which an UPDATE or a DELETE comes to the rows of its table. A SELECT with the same
// WHERE may come to them in another one: it likes to read an index that has all columns it wants,
// which is of no use to those that write.
//
//   ASSIGN_OR_RETURN(ReadOrder order, ReadOrderOf(db, "sqlite-lm: look-ahead", "UPDATE ...", "t"));
//   StrCat("SELECT ... FROM t ", order.index, " WHERE ...");
#ifndef LM_EXTENSION_BATCH_READ_ORDER_H_
#define LM_EXTENSION_BATCH_READ_ORDER_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/host/sqlite_api.h"

namespace lm {

struct ReadOrder {
  // What a FROM says behind the table's name to read it as the statement's WHERE does; or nothing.
  std::string index;
  // An UPDATE that collects the rowids of its rows first, and changes the rows in their order.
  bool by_rowid = false;
};

// Of a statement that writes `target` (its name without a schema) and runs at present. Where its
// plan cannot be looked at without anybody noticing, what is known without it.
absl::StatusOr<ReadOrder> ReadOrderOf(sqlite3* db, absl::string_view asker, absl::string_view sql,
                                      absl::string_view target);

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_READ_ORDER_H_
