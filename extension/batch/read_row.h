// The arguments that every function of a row has: (prompt [, system [, options]]).
#ifndef LM_EXTENSION_BATCH_READ_ROW_H_
#define LM_EXTENSION_BATCH_READ_ROW_H_

#include "absl/status/statusor.h"
#include "extension/batch/pending_answer.h"
#include "extension/connection/scalar_function.h"

namespace lm {

// What is wrong with the prompt or the system prompt is the row's failure; an error is the
// statement's. A NULL prompt needs no options, nor a model.
absl::StatusOr<RowPrompt> ReadRow(const Call& call);

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_READ_ROW_H_
