// lm_prefill(prompt [, system [, options]])   JSON: what of the prompt is computed now, and kept
//
//   SELECT lm_prefill(NULL, 'You are given a review. ...');        -- what all its prompts share
//   SELECT lm_prefill(body, 'You are given a report. ...') FROM reports;
//
// Computes a prompt and answers nothing: the next generate() that begins with it starts where it
// ends. With lm_settings('prefix_store') the prompt is written to the store at once (else only what
// two prompts have begun with is), and another process finds it, on this machine or on one that has
// the folder. Without a store the prompt stays in this process's cache. prompt NULL: up to where
// the text of a prompt would begin.
//
//   {"tokens":2100,"computed":2100,"bytes":68812800,"place":"store"}
//
// tokens is how many tokens a later prompt is spared, computed how many of them were computed now
// (the others were known), bytes what they take in memory, place "store" or "memory". It belongs to
// this database, as all prefixes do (lm_settings('salt')). A prompt of fewer than 64 tokens is not
// written.
//
// It takes system and options as generate() does; of these only those that are part of the prompt
// matter (messages, examples, lora, model), and the budgets of the statement (max_seconds,
// max_total_tokens, max_cost). Behind the prompt the model says one token, which nobody sees: it
// counts as an answer's, in budgets, lm_stats, and costs. A prompt that does not fit is an error,
// as for generate().
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/engine.h"
#include "extension/binding/scalar_function.h"
#include "extension/connection/await.h"
#include "extension/connection/spending_share.h"
#include "extension/functions/functions.h"
#include "extension/host/interrupt.h"

namespace lm {
namespace {

absl::Status Prefill(Call& call) {
  ASSIGN_OR_RETURN(const std::optional<std::string> prompt, call.Text(0, "prompt"));
  ASSIGN_OR_RETURN(const std::optional<std::string> system, call.Text(1, "system"));
  ASSIGN_OR_RETURN(const CallOptions options, call.Options(2));
  const std::shared_ptr<Engine>& engine = options.generator().engine();
  if (engine == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "model '", options.generator().info().name, "' is on the network: it keeps its own cache"));
  }
  auto submit = [&](const Session& session) {
    return session.Submit({.task = Task::kPrefill,
                           .prompt = prompt.has_value() ? *prompt : "",
                           .system = options.SystemOf(system),
                           .options = options.generation});
  };
  RETURN_IF_ERROR(CheckStatementTime(options.generation.max_seconds));
  SpendingShare share;
  ASSIGN_OR_RETURN(const std::shared_ptr<Request> request,
                   SpendingShare::Submit(options, submit, &share));
  RETURN_IF_ERROR(Await(call.connection().db(), *request));
  const Generation& result = request->result();
  share.Settle(result);
  if (const std::shared_ptr<RunningWork> work = StatementCall::Work()) {
    work->CountAnswer(result.status.ok(), result.tokens_out);
  }
  RETURN_IF_ERROR(GenerationStatus(result));
  InterruptPoll poll(call.connection().db());
  while (!engine->stored().Flush(kInterruptInterval)) {
    if (poll.Interrupted()) return absl::CancelledError("interrupted");
  }
  const RequestSpec& spec = request->spec();
  const int64_t tokens = spec.store.empty() ? 0 : spec.store.back();
  const bool stored =
      tokens > 0 &&
      engine->stored().TokensOf(spec.salt, spec.adapters,
                                absl::MakeConstSpan(spec.prompt).subspan(0, tokens + 1)) == tokens;
  Json json = Json::MakeObject();
  json.Add("tokens", tokens);
  json.Add("computed", std::max<int64_t>(tokens - result.tokens_cached, 0));
  json.Add("bytes", engine->stored().BytesOf(tokens));
  json.Add("place", stored ? "store" : "memory");
  ResultJson(call.context(), json.Dump());
  return absl::OkStatus();
}

}  // namespace

int RegisterPrefill(const std::shared_ptr<Connection>& connection) {
  return RegisterScalar<&Prefill>(connection, {"lm_prefill", 1, 3, kDirectOnly | kReturnsJson});
}

}  // namespace lm
