// lm_logprobs(text [, options])   JSON: the log-probability of each token given those before it
//
//   SELECT lm_logprobs('The quick brown fox');                           -- [null,-4.1,-2.7,...]
//
//   -- Which of two sentences does the model find more natural?
//   SELECT text, (SELECT avg(value) FROM json_each(lm_logprobs(text))) AS mean_logprob
//     FROM sentences ORDER BY mean_logprob DESC;
//
// Natural logarithms, one for each token of lm_tokenize(text), the first of which is null: nothing
// stands before it. The text is taken as it is, without the chat template. NULL gives NULL. The
// options are those that matter without an answer: model, timeout_ms, on_error, on_overflow (the
// numbers are those of the tokens that are left), the budgets of the statement (max_seconds,
// max_total_tokens, max_cost), ...
#include <charconv>
#include <cmath>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/batch/row_answer.h"
#include "extension/binding/scalar_function.h"
#include "extension/connection/await.h"
#include "extension/connection/spending_share.h"
#include "extension/functions/functions.h"

namespace lm {
namespace {

// The row's failure is its status, also an interrupt before it is asked for; an error is the
// statement's.
absl::StatusOr<Generation> ScoreText(Call& call, absl::StatusOr<std::optional<std::string>> text,
                                     const CallOptions& options) {
  auto failed = [](absl::Status status) { return Generation{.status = std::move(status)}; };
  if (!text.ok()) return failed(text.status());
  auto submit = [&](const Session& session) {
    return session.Submit({.task = Task::kScore, .prompt = **text, .options = options.generation});
  };
  absl::Status time = CheckStatementTime(options.generation.max_seconds);
  if (!time.ok()) return failed(std::move(time));
  SpendingShare share;
  const absl::StatusOr<std::shared_ptr<Request>> request =
      SpendingShare::Submit(options, submit, &share);
  if (!request.ok()) return failed(request.status());
  absl::Status waited = Await(call.connection().db(), **request);
  if (absl::IsDeadlineExceeded(waited)) return failed(std::move(waited));
  RETURN_IF_ERROR(waited);
  Generation result = (*request)->result();
  share.SettleTokens(result.tokens_in, 0);
  result.status = GenerationStatus(result);
  return result;
}

absl::Status Logprobs(Call& call) {
  if (call.IsNull(0)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::optional<std::string> given, call.Text(1, "options"));
  RETURN_IF_ERROR(CheckNoneOfAnswers(given));
  ASSIGN_OR_RETURN(const CallOptions options, call.Options(given));
  ASSIGN_OR_RETURN(const Generation result, ScoreText(call, call.Text(0, "text"), options));
  if (absl::IsCancelled(result.status)) return result.status;
  if (const std::shared_ptr<RunningWork> work = StatementCall::Work()) {
    work->CountAnswer(result.status.ok(), 0);
  }
  if (!result.status.ok()) {
    return ResultAnswer(call.context(), {.generation = result}, options.generation.on_error);
  }
  std::string json = "[null";
  for (float logprob : result.prompt_logprobs) {
    // -Infinity is not JSON; a token that cannot be is as good as one at the edge of F32.
    char digits[32];
    const auto end = std::to_chars(digits, std::end(digits), std::fmax(logprob, -3.4e38f),
                                   std::chars_format::general, 7);
    absl::StrAppend(&json, ",", absl::string_view(digits, end.ptr - digits));
  }
  json += ']';
  ResultJson(call.context(), json);
  return absl::OkStatus();
}

}  // namespace

int RegisterLogprobs(const std::shared_ptr<Connection>& connection) {
  return RegisterScalar<&Logprobs>(connection, {"lm_logprobs", 1, 2, kDirectOnly | kReturnsJson});
}

}  // namespace lm
