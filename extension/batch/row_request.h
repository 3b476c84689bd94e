// What a row asks of its generator.
#ifndef LM_EXTENSION_BATCH_ROW_REQUEST_H_
#define LM_EXTENSION_BATCH_ROW_REQUEST_H_

#include "absl/status/status.h"
#include "engine/runtime/generator.h"
#include "extension/batch/row_prompt.h"

namespace lm {

// Refers to the row. REQUIRES: it has a prompt and options, and its system prompt is no error.
TextRequest RequestOf(const RowPrompt& row);

// The failure that a row has before anything is computed: its text is not valid, or does not fit.
// OK where there is no prompt. REQUIRES: the row has options.
absl::Status CheckRow(const RowPrompt& row);

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_ROW_REQUEST_H_
