// generate(prompt [, system [, options]])   TEXT: the model's answer
// lm_try(prompt [, system [, options]])     JSON: the answer, or why there is none, and its counts
//
//   SELECT generate('Write a haiku about autumn.');
//   SELECT id, generate(body, 'Label the review: positive, negative or mixed.') FROM reviews;
//   SELECT generate('Name three colours.', NULL, '{"max_tokens":20,"temperature":0.7,"seed":1}');
//   SELECT try->>'value', try->>'error' FROM (SELECT lm_try(body, 'Summarise.') AS try FROM notes);
//
// `system` is the part of the prompt that all rows share: the engine reads it once. `options` is a
// JSON object; an unknown key or a wrong type is an error that names it. With a temperature the
// answer is drawn, but not at random: the same seed (0, if none is given) draws the same again. For
// other answers to the same prompt give each row a seed of its own: json_object('temperature', 0.8,
// 'seed', id). {"n":3} draws three of them beside each other, as a JSON array, and computes the
// prompt once; {"best_of":5} draws five and gives the one whose tokens the model finds most
// probable; {"vote":5} draws five and gives what most of the five say: texts with the same words,
// whatever their case, white space, and marks around them, or the same JSON. A tie is a row that
// cannot be answered. lm_try tells the shares, of a tie too:
//   {"value":"Lily","error":null,...,"votes":{"Lily":0.6,"Max":0.2,"Tom":0.2}}
//
// A NULL prompt gives NULL. A row that cannot be answered (a BLOB, invalid UTF-8, a prompt longer
// than the context) ends the statement with an error; with {"on_error":"null"} it gives NULL, with
// {"on_error":"json"} the object that lm_try returns:
//   {"value":null,"error":"prompt ...","finish":"error","tokens_in":0,"tokens_out":0}
// {"timeout_ms":n} fails a row that the model has worked on for n milliseconds; the time in which
// the row waits for others, or shares with them, does not count: a row that has time enough alone
// has time enough in any statement. max_seconds (on the clock), max_total_tokens (of prompts and
// answers) and max_cost (at the model's prices) are budgets of the whole statement: a row for which
// what is left of them may not be enough cannot be answered either. lm_try has all these failures
// in its object, whatever on_error says; so it has a model on the network whose servers are away,
// or fail, be it at the first use. Options that are wrong, a model of this machine that cannot be
// loaded and one that its servers do not have are mistakes of the statement, not of a row: they are
// errors in any case. So is sqlite3_interrupt.
//
// HOW IT WORKS
//
// The thread that runs the statement submits the prompt to the model's engine and waits; the engine
// batches what all connections submit. A generation that no statement waits for any more is
// cancelled.
#include <memory>
#include <utility>

#include "engine/base/status_macros.h"
#include "extension/batch/await_row.h"
#include "extension/batch/pending_answer.h"
#include "extension/batch/row_answer.h"
#include "extension/batch/row_prompt.h"
#include "extension/binding/scalar_function.h"
#include "extension/functions/functions.h"

namespace lm {
namespace {

absl::Status Generate(Call& call) {
  ASSIGN_OR_RETURN(RowPrompt row, ReadRow(call));
  return AnswerRow(call, std::move(row));
}

absl::Status Try(Call& call) {
  ASSIGN_OR_RETURN(RowPrompt row, ReadRow(call, OnError::kJson));
  const bool vote = row.options != nullptr && row.options->generation.vote > 0;
  ASSIGN_OR_RETURN(std::optional<PendingAnswer> pending, AwaitRow(call, std::move(row)));
  if (!pending.has_value()) return absl::OkStatus();
  if (pending->answer().null_prompt) {
    sqlite3_result_null(call.context());
  } else {
    ResultJson(call.context(), GenerationJson(pending->answer().generation, vote));
  }
  return absl::OkStatus();
}

}  // namespace

int RegisterGenerate(const std::shared_ptr<Connection>& connection) {
  int code = RegisterScalar<&Generate>(connection, {"generate", 1, 3, kDirectOnly | kReturnsJson});
  if (code != SQLITE_OK) return code;
  return RegisterScalar<&Try>(connection, {"lm_try", 1, 3, kDirectOnly | kReturnsJson});
}

}  // namespace lm
