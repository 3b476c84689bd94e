// generate(prompt [, system [, options]])   TEXT: the model's answer
// lm_try(prompt [, system [, options]])     JSON: the answer, or why there is none, and its counts
//
//   SELECT generate('Write a haiku about autumn.');
//   SELECT id, generate(body, 'Label the review: positive, negative or mixed.') FROM reviews;
//   SELECT generate('Name three colours.', NULL, '{"max_tokens":20,"temperature":0.7,"seed":1}');
//   SELECT try->>'value', try->>'error' FROM (SELECT lm_try(body, 'Summarise.') AS try FROM notes);
//
// `system` is the part of the prompt that all rows share: the engine reads it once. `options` is a
// JSON object; an unknown key or a wrong type is an error that names it.
//
// A NULL prompt gives NULL. A row that cannot be answered (a BLOB, invalid UTF-8, a prompt longer
// than the context) ends the statement with an error; with {"on_error":"null"} it gives NULL, with
// {"on_error":"json"} the object that lm_try returns:
//   {"value":null,"error":"prompt ...","finish":"error","tokens_in":0,"tokens_cached":0,
//    "tokens_out":0}
// Options that are wrong and a model that cannot be loaded are mistakes of the statement, not of a
// row: they are errors in any case. So is sqlite3_interrupt.
//
// HOW IT WORKS
//
// The thread that runs the statement submits the prompt to the model's engine and waits; the engine
// batches what all connections submit. A generation that nobody waits for any more is cancelled.
#include <string>

#include "engine/base/status_macros.h"
#include "extension/generation_json.h"
#include "extension/interrupt.h"
#include "extension/registrations.h"
#include "extension/scalar_function.h"

namespace lm {
namespace {

// The request for one row. Errors are the row's own.
absl::StatusOr<std::shared_ptr<Request>> SubmitRow(
    const absl::StatusOr<std::optional<std::string>>& prompt,
    const absl::StatusOr<std::optional<std::string>>& system, const CallOptions& options) {
  RETURN_IF_ERROR(prompt.status());
  RETURN_IF_ERROR(system.status());
  return options.session().Submit(**prompt, system->value_or(""), options.generation);
}

absl::Status Generate(Call& call) {
  absl::StatusOr<std::optional<std::string>> prompt = call.Text(0, "prompt");
  if (prompt.ok() && !prompt->has_value()) {
    sqlite3_result_null(call.context());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(CallOptions options, call.Options(2));
  absl::StatusOr<std::shared_ptr<Request>> request =
      SubmitRow(prompt, call.Text(1, "system"), options);
  absl::Status failure = request.status();
  if (request.ok()) {
    RETURN_IF_ERROR(Await(call.connection().db(), **request));
    failure = GenerationStatus((*request)->result());
  }
  if (failure.ok()) {
    ResultText(call.context(), (*request)->result().text);
    return absl::OkStatus();
  }
  switch (options.generation.on_error) {
    case OnError::kError:
      return failure;
    case OnError::kNull:
      sqlite3_result_null(call.context());
      return absl::OkStatus();
    case OnError::kJson:
      ResultJson(call.context(),
                 request.ok() ? GenerationJson((*request)->result()) : FailureJson(failure));
      return absl::OkStatus();
  }
  return failure;
}

absl::Status Try(Call& call) {
  absl::StatusOr<std::optional<std::string>> prompt = call.Text(0, "prompt");
  if (prompt.ok() && !prompt->has_value()) {
    sqlite3_result_null(call.context());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(CallOptions options, call.Options(2));
  absl::StatusOr<std::shared_ptr<Request>> request =
      SubmitRow(prompt, call.Text(1, "system"), options);
  if (!request.ok()) {
    ResultJson(call.context(), FailureJson(request.status()));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Await(call.connection().db(), **request));
  ResultJson(call.context(), GenerationJson((*request)->result()));
  return absl::OkStatus();
}

}  // namespace

int RegisterGenerate(const std::shared_ptr<Connection>& connection) {
  int code = RegisterScalar<&Generate>(connection, {"generate", 1, 3, kDirectOnly | kReturnsJson});
  if (code != SQLITE_OK) return code;
  return RegisterScalar<&Try>(connection, {"lm_try", 1, 3, kDirectOnly | kReturnsJson});
}

}  // namespace lm
