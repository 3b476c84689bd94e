// AwaitRow, AnswerRow, CursorAhead: the answer to one row, for the functions and tables that ask
// the model one thing for each row. Rows of one statement are foreseen (look_ahead.h) and decode
// together.
//
//   absl::Status Generate(Call& call) {
//     ASSIGN_OR_RETURN(RowPrompt row, ReadRow(call));
//     return AnswerRow(call, std::move(row));
//   }
#ifndef LM_EXTENSION_BATCH_AWAIT_ROW_H_
#define LM_EXTENSION_BATCH_AWAIT_ROW_H_

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "extension/batch/pending_answer.h"
#include "extension/batch/row_answer.h"
#include "extension/batch/row_prompt.h"
#include "extension/binding/scalar_function.h"

namespace lm {

class LookAhead;

// The answer to a call of a function that generates one row. nullopt where the call is a shadow's
// and its answer is not known: NULL has been set as its result. An error is the statement's.
absl::StatusOr<std::optional<PendingAnswer>> AwaitRow(const Call& call, RowPrompt row);

// Makes the answer the call's result, or, of a row that failed, what on_error makes of that.
absl::Status AnswerRow(const Call& call, RowPrompt row, AnswerType type = AnswerType::kText);

// AwaitRow() for a table-valued function that is called for each row of a join and whose scans ask
// the model one thing each: its cursor has a CursorAhead. In a shadow a scan whose answer is not
// known has no rows.
//
//   ASSIGN_OR_RETURN(std::optional<PendingAnswer> pending, ahead_.Await(std::move(row)));
//   if (!pending.has_value()) return absl::OkStatus();
class CursorAhead {
 public:
  // `table` stands for the place that makes the calls: the same for all cursors there.
  // REQUIRES: the connection outlives it.
  CursorAhead(Connection& connection, const char* function, const void* table);
  ~CursorAhead();

  absl::StatusOr<std::optional<PendingAnswer>> Await(RowPrompt row);

 private:
  Connection& connection_;
  const char* const function_;
  const void* const table_;
  std::unique_ptr<LookAhead> ahead_;  // made at the first call that is not a shadow's
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_AWAIT_ROW_H_
