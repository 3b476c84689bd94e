// Recursive tables that come to an end. A shadow (shadow_statement.h) has no answer where its
// statement waits for one, nor a reason to stop where its statement has enough rows: a recursion
// that ends by either would go on for ever.
#ifndef LM_EXTENSION_BATCH_BOUNDED_RECURSION_H_
#define LM_EXTENSION_BATCH_BOUNDED_RECURSION_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace lm {

struct BoundedRecursions {
  std::string sql;  // with LIMIT `rows` in each recursive table of a WITH that had no LIMIT
  // Whether each of them ends after so many rows. Not one that has a LIMIT already, of more rows or
  // of none: LIMIT -1.
  bool all_end = true;
};
BoundedRecursions WithBoundedRecursions(absl::string_view sql, int64_t rows);

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_BOUNDED_RECURSION_H_
