// lm_if(text, question [, options])       INTEGER: 1 where the model says yes, else 0
// lm_filter(text, question [, options])   the same as lm_if(), by a name that reads well in a WHERE
// lm_score(text, criterion [, options])   REAL: how probable a yes is, from 0 to 1
//
//   SELECT id FROM letters WHERE lm_filter(body, 'Does the writer ask for a refund?');
//   SELECT id, body FROM letters ORDER BY lm_score(body, 'The writer is angry.') DESC LIMIT 10;
//
// The model is told to answer yes or no, reads the text, and behind it
//   {question} Answer yes or no.        or        Yes or no: {criterion}
// so that several questions about one text read it once. Instead of an answer, the logits of yes
// and no are compared: one pass over the prompt, no decode step, no sampling. lm_score is
//   p(yes) / (p(yes) + p(no))
// where the probabilities are those of all tokens that begin one of these words, upper case or
// lower (the first letter decides), and lm_if says whether that is more than a half behind its own
// words. Options of sampling change nothing, but logit_bias does; on_overflow cuts the text, never
// the question.
//
// A server elsewhere may give no probabilities: an error. With {"vote": 5} five answers are asked
// for, at a temperature of 1 unless the options name another, each with a seed of its own; lm_score
// is the share of those that say yes, and lm_if what most of them say. Where half do, the row fails
// (on_error): an odd number cannot tie. Each answer is a request, and is paid for.
//
// lm_if asks two models, one only where the other is in doubt, with
//   {"model": "small", "escalate": {"model": "large", "below": 0.9}}
// The small one's answer counts where its share, of yes or of no, is at least `below`; else the
// large one's does. lm_calibrate finds what to write there (extension/questions/cascade.h).
//
// A NULL text gives NULL.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/batch/await_row.h"
#include "extension/connection/own_options.h"
#include "extension/functions/functions.h"
#include "extension/questions/cascade.h"
#include "extension/questions/constrained_options.h"
#include "extension/questions/yes_or_no.h"

namespace lm {
namespace {

// Asks what the caller has asked, in the words of `question`, and hands what the model says, and
// how many votes that is (0: none), to `result`, which may find that it is no answer.
template <typename Result>
absl::Status Judge(Call& call, const std::string& asked, const std::string& question,
                   bool takes_escalate, Result result) {
  ASSIGN_OR_RETURN(const std::optional<std::string> json, call.Text(2, "options"));
  ASSIGN_OR_RETURN(const OwnOptions own, takes_escalate ? OwnOptions::TakeOfCall(json, {"escalate"})
                                                        : OwnOptions::TakeOfCall(json, {}));
  auto read = [&call](const std::optional<std::string>& given) {
    return ConstrainedOptions(call, given, YesOrNo());
  };
  ASSIGN_OR_RETURN(const std::shared_ptr<const CallOptions> options, read(own.rest()));
  RowPrompt row = AskYesOrNo(call.Text(0, "text"), question, options, asked);
  RETURN_IF_ERROR(AddEscalation(own, ConfidenceInYesOrNo, read, &row));
  ASSIGN_OR_RETURN(const std::optional<PendingAnswer> pending, AwaitRow(call, std::move(row)));
  if (!pending.has_value()) return absl::OkStatus();
  absl::Status status = pending->answer().generation.status;
  if (status.ok()) {
    status = result(pending->answer().generation, options->generation.vote);
    if (status.ok()) return status;
  }
  RowAnswer failed = pending->answer();
  failed.generation.status = std::move(status);
  return ResultAnswer(call.context(), failed, pending->on_error());
}

absl::Status If(Call& call) {
  if (call.IsNull(0)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string question, NeededText(call, 1, "question"));
  return Judge(call, question, absl::StrCat(question, " Answer yes or no."),
               /*takes_escalate=*/true, [&call](const Generation& answer, int32_t votes) {
                 RETURN_IF_ERROR(CheckNoTie(answer, votes));
                 sqlite3_result_int(call.context(), ProbabilityOfYes(answer, votes) > 0.5);
                 return absl::OkStatus();
               });
}

absl::Status Score(Call& call) {
  if (call.IsNull(0)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string criterion, NeededText(call, 1, "criterion"));
  return Judge(call, criterion, absl::StrCat("Yes or no: ", criterion), /*takes_escalate=*/false,
               [&call](const Generation& answer, int32_t votes) {
                 sqlite3_result_double(call.context(), ProbabilityOfYes(answer, votes));
                 return absl::OkStatus();
               });
}

}  // namespace

int RegisterJudge(const std::shared_ptr<Connection>& connection) {
  for (const char* name : {"lm_if", "lm_filter"}) {
    const int code = RegisterScalar<&If>(connection, {name, 2, 3, kDirectOnly | kReturnsJson});
    if (code != SQLITE_OK) return code;
  }
  return RegisterScalar<&Score>(connection, {"lm_score", 2, 3, kDirectOnly | kReturnsJson});
}

}  // namespace lm
