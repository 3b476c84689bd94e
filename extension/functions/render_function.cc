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
// or `system` look alike here and are plain text there. A NULL prompt gives NULL.
//
// Without options, views and triggers of a database may use it (PRAGMA trusted_schema); an index
// may not, since templates may write the date.
#include <string>

#include "engine/base/status_macros.h"
#include "extension/connection/own_options.h"
#include "extension/connection/scalar_function.h"
#include "extension/functions/functions.h"

namespace lm {
namespace {

absl::Status Render(Call& call) {
  ASSIGN_OR_RETURN(std::optional<std::string> prompt, call.Text(0, "prompt"));
  if (!prompt.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::optional<std::string> system, call.Text(1, "system"));
  if (system.has_value()) RETURN_IF_ERROR(CheckNotOptions(*system, "system"));
  ASSIGN_OR_RETURN(CallOptions options, call.Options(2));
  ASSIGN_OR_RETURN(
      const std::string text,
      options.generator().Render(
          {.prompt = *prompt, .system = options.SystemOf(system), .options = options.generation}));
  ResultText(call.context(), text);
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
