// lm_render(prompt [, system [, options]])   TEXT: what generate() would have the model read
//
//   SELECT lm_render('Which section?', 'You know Debian packages.');
//     <|im_start|>system
//     You know Debian packages.<|im_end|>
//     <|im_start|>user
//     Which section?<|im_end|>
//     <|im_start|>assistant
//
// The chat template's own markers are control tokens to the model; the same characters in `prompt`
// or `system` look alike here and are plain text there. A NULL prompt gives NULL; what cannot be
// rendered is a failure of its row (on_error).
//
// Without options, views and triggers of a database may use it (PRAGMA trusted_schema); an index
// may not, since templates may write the date.
#include <string>

#include "engine/base/status_macros.h"
#include "extension/batch/row_answer.h"
#include "extension/batch/row_prompt.h"
#include "extension/batch/row_request.h"
#include "extension/binding/scalar_function.h"
#include "extension/functions/functions.h"

namespace lm {
namespace {

// REQUIRES: the row has options.
absl::StatusOr<std::string> Rendered(const RowPrompt& row) {
  RETURN_IF_ERROR(row.prompt.status());
  RETURN_IF_ERROR(row.system.status());
  return row.options->generator().Render(RequestOf(row));
}

absl::Status Render(Call& call) {
  if (call.IsNull(0)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const RowPrompt row, ReadRow(call));
  const absl::StatusOr<std::string> text = Rendered(row);
  if (absl::IsCancelled(text.status())) return text.status();
  if (!text.ok()) {
    return ResultAnswer(call.context(), {.generation = {.status = text.status()}},
                        row.options->generation.on_error);
  }
  ResultText(call.context(), *text);
  return absl::OkStatus();
}

}  // namespace

int RegisterRender(const std::shared_ptr<Connection>& connection) {
  // Not deterministic: a template may write today's date.
  int code = RegisterScalar<&Render>(connection, {"lm_render", 1, 2, 0});
  if (code != SQLITE_OK) return code;
  return RegisterScalar<&Render>(connection, {"lm_render", 3, 3, kDirectOnly});
}

}  // namespace lm
