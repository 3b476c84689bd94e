// What RemoteServer does to find out whether its servers keep to constraints.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/remote/canary.h"
#include "engine/remote/chat_constraint.h"
#include "engine/remote/estimated_tokens.h"
#include "engine/remote/remote_server.h"
#include "engine/runtime/trouble.h"

namespace lm {
namespace {

constexpr size_t kShownOfProof = 200;
// Of a question that Prove asks.
constexpr int64_t kProofTimeoutMs = 30'000;
constexpr int32_t kProofTokens = 1024;  // few contexts have no room for them

bool IsCut(const Generation& generation) { return generation.finish == FinishReason::kLength; }

}  // namespace

bool RemoteServer::IsProven(const RemoteJob& job) {
  const RequestSpec& spec = job.request->spec();
  const Kind kind = spec.options.constraint.kind;
  if (kind == Kind::kNone || spec.wants_first_choices) return true;
  if (proofs_.of(kind) == Proof::kNone) AskCanary(spec);
  return proofs_.of(kind) == Proof::kGiven;
}

void RemoteServer::AskCanary(const RequestSpec& spec) {
  const Kind kind = spec.options.constraint.kind;
  absl::StatusOr<RemoteJob> job = CanaryJob(CanaryOf(kind, spec.salt, spec.options.max_tokens));
  if (!job.ok()) {  // and so will be what waits for it
    proofs_.Note(kind, job.status());
    proofs_.set(kind, Proof::kGiven);
    return;
  }
  QueueOf(*job).push_front(*std::move(job));
  ++num_queued_;
  proofs_.set(kind, Proof::kAsked);
  WakeAt(MonotonicTime::Now());
}

absl::StatusOr<RemoteJob> RemoteServer::CanaryJob(RequestSpec spec) const {
  RemoteJob job{.tokens = MostTokens(spec), .prompt_tokens = PromptTokens(spec), .is_canary = true};
  ASSIGN_OR_RETURN(job.body, BodyOf(spec));
  job.request = std::make_shared<Request>(std::move(spec));
  return job;
}

std::vector<std::shared_ptr<Request>> RemoteServer::Prove(absl::string_view salt) {
  std::vector<std::shared_ptr<Request>> asked;
  for (Kind kind : ConstraintProofs::kKinds) {
    RequestSpec spec = CanaryOf(kind, salt, kProofTokens);
    spec.options.timeout_ms = kProofTimeoutMs;
    absl::StatusOr<RemoteJob> job = CanaryJob(std::move(spec));
    if (!job.ok()) {
      proofs_.Note(kind, job.status());
      continue;
    }
    asked.push_back(job->request);
    HandOver(*std::move(job), nullptr);
  }
  return asked;
}

absl::Status RemoteServer::NotProven(const GenerationOptions& asked,
                                     const Generation& generation) const {
  const Kind kind = asked.constraint.kind;
  const std::string word = CanaryAnswer(kind);
  const std::string said = Printable(secrets_.Without(generation.text, kShownOfProof));
  if (!IsCut(generation)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the server ignores ", ConstraintName(kind), ": made to say ", word, ", it said ", said,
        " (spoken to as ", DialectName(model_.dialect), "; see the option dialect)"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "whether the server keeps to ", ConstraintName(kind), " is not known: made to say ", word,
      ", it was cut off ", said.empty() ? "within its reasoning" : absl::StrCat("after ", said),
      kind == Kind::kChoices ? ""
                             : absl::StrCat(" at max_tokens = ", asked.max_tokens,
                                            "; raise max_tokens, or have it reason less")));
}

void RemoteServer::ConcludeCanary(const RemoteCall& call, const Generation& generation) {
  const GenerationOptions& asked = call.spec().options;
  const Kind kind = asked.constraint.kind;
  const bool right = generation.text == CanaryAnswer(kind);
  const bool cut = IsCut(generation) && !right;  // not in white space behind it
  absl::Status why = generation.status;
  if (call.job.request->abandoned()) {  // which says nothing of the server
    if (!call.job.request->cancelled()) proofs_.Note(kind, why);
    return;
  }
  if (cut || (why.ok() && !right)) why = NotProven(asked, generation);
  proofs_.Note(kind, why);
  // The next who asks may find another server.
  proofs_.set(kind, why.ok() ? Proof::kGiven : Proof::kNone);
  if (why.ok()) return;
  const Trouble trouble = TroubleOf(why);
  if (trouble == Trouble::kNone || trouble == Trouble::kRefusal) {
    why = WithTrouble(std::move(why), Trouble::kUnproven);
  }
  // Who may have more tokens than were too few asks once more.
  const int32_t most = cut ? MostAnswerTokens(asked) : std::numeric_limits<int32_t>::max();
  DropIf(
      [kind, most](const RemoteJob& job) {
        const RequestSpec& spec = job.request->spec();
        return ConstraintProofs::AreOne(spec.options.constraint.kind, kind) &&
               spec.options.max_tokens <= most && !spec.wants_first_choices && !job.is_canary;
      },
      [&why](const RemoteJob&) { return why; });
}

// The rest of Answered of a first question, and of what is to fit. False: it is asked once more.
bool RemoteServer::HoldsCanary(RemoteCall* call, Generation* generation) {
  const AnswerConstraint& constraint = call->spec().options.constraint;
  std::optional<std::string> text = UnwrapAnswer(constraint, model_.dialect, generation->text);
  if (text.has_value()) generation->text = *std::move(text);
  if (generation->text == CanaryAnswer(constraint.kind)) return true;
  if (IsCut(*generation)) return true;  // which says nothing of the server
  if (AskAnother(call, /*is_servers=*/true)) return false;
  // As any answer that does not fit it has a second try.
  if (std::exchange(call->job.repaired, true)) return true;
  call->AddSpent();
  SendAgain(std::move(call->job), MonotonicTime::Now());
  return false;
}

bool RemoteServer::HoldsProof(RemoteCall* call, Generation* generation) {
  const AnswerConstraint& constraint = call->spec().options.constraint;
  absl::Status fits =
      ProveAnswer(constraint, *call->job.grammar, model_.dialect, &generation->text);
  if (fits.ok()) return true;
  const bool cut = IsCut(*generation);
  if (!cut) {
    Doubted(call, /*is_servers=*/false);
    ServerPool::Shunned& shunned = call->job.shunned;
    shunned.places.insert(call->endpoint);
    shunned.since = std::min(shunned.since, MonotonicTime::Now());
  }
  if (SendBack(call, generation->text)) return false;
  generation->status =
      cut ? absl::FailedPreconditionError(absl::StrCat("cut at max_tokens: ", fits.message()))
          : std::move(fits);
  return true;
}

}  // namespace lm
