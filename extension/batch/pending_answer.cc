#include "extension/batch/pending_answer.h"

#include <utility>

#include "engine/base/status_macros.h"
#include "extension/batch/map_reduce.h"
#include "extension/batch/row_request.h"
#include "extension/connection/await.h"
#include "extension/connection/statement_call.h"

namespace lm {
namespace {

// REQUIRES: the row has a prompt.
absl::StatusOr<std::shared_ptr<Request>> SubmitRow(const RowPrompt& row, const Session& session) {
  TextRequest request = RequestOf(row);
  request.scan = row.scan;
  if (request.scan == nullptr && !session.only_counts()) {
    if (const auto work = StatementCall::Work()) request.scan = work->scan();
  }
  return session.Submit(std::move(request));
}

}  // namespace

PendingAnswer::PendingAnswer(RowPrompt row) : row_(std::move(row)) {}

PendingAnswer::PendingAnswer(RowPrompt row, RowAnswer answer)
    : row_(std::move(row)), submitted_(true), answer_(std::move(answer)) {}

PendingAnswer::PendingAnswer(PendingAnswer&&) = default;

PendingAnswer::~PendingAnswer() {
  // In a forked child, whose locks this takes may never be let go.
  if (request_ == nullptr || fork_guard_.forked()) return;
  // To look at the result may write the memo's file: only where there is something to settle.
  if (share_.holds() && request_->WaitFor(absl::ZeroDuration())) share_.Settle(request_->result());
  request_->Cancel();
}

void PendingAnswer::Refuse(absl::Status status) {
  submitted_ = true;
  answer_.generation.status = std::move(status);
}

absl::Status PendingAnswer::TakeShare() {
  const GenerationOptions& options = row_.options->generation;
  // Where the statement has no time any more, the rest of its rows do not begin.
  if (!ends_statement()) RETURN_IF_ERROR(CheckStatementTime(options.max_seconds));
  ASSIGN_OR_RETURN(share_, SpendingShare::Take(*row_.options, [this](const Session& session) {
                     return SubmitRow(row_, session);
                   }));
  return absl::OkStatus();
}

bool PendingAnswer::Submit() {
  if (submitted_) return true;
  if (!row_.prompt.ok()) {
    Refuse(row_.prompt.status());
  } else if (!row_.prompt->has_value()) {
    submitted_ = answer_.null_prompt = true;
  } else if (!row_.system.ok()) {
    Refuse(row_.system.status());
  } else if (row_.parts != nullptr) {
    return SubmitInParts();
  } else {
    over_budget_ = TakeShare();
    if (!over_budget_.ok()) {
      answer_.generation.status = over_budget_;
      return false;
    }
    absl::StatusOr<std::shared_ptr<Request>> request = SubmitRow(row_, row_.options->session());
    if (!request.ok()) share_.SettleTokens(0, 0);
    if (absl::IsResourceExhausted(request.status())) {
      answer_.generation.status = request.status();
      return false;
    }
    submitted_ = true;
    if (request.ok()) {
      request_ = *std::move(request);
      asked_ = true;
    } else {
      Refuse(request.status());
    }
  }
  if (row_.escalation == nullptr) {
    row_.prompt = std::nullopt;
    row_.system = std::nullopt;
  }
  // What is remembered is there at once, and may be nothing to rely on.
  if (row_.escalation != nullptr) Collect();
  return true;
}

// A text that is one prompt is a row like any other from here on.
bool PendingAnswer::SubmitInParts() {
  MapReduceTask task{.options = *row_.options,
                     .instruction = std::string(row_.options->SystemOf(*row_.system)),
                     .parts = *row_.parts};
  std::unique_ptr<MapReduce> work;
  const absl::StatusOr<bool> is_long = [&]() -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(work, MapReduce::Create(std::move(task)));
    return work->Begin(**row_.prompt);
  }();
  if (is_long.ok() && !*is_long) {
    row_.parts.reset();
    return Submit();
  }
  if (!is_long.ok()) {
    Refuse(is_long.status());
  } else {
    parts_ = std::move(work);
    submitted_ = true;
    asked_ = true;
    counted_ = true;  // its prompts are
  }
  row_.prompt = std::nullopt;
  row_.system = std::nullopt;
  CollectParts();
  return true;
}

void PendingAnswer::CollectParts() {
  if (parts_ == nullptr || !parts_->Advance()) return;
  answer_.generation = parts_->result();
  parts_.reset();
}

const absl::Status& PendingAnswer::over_budget() const {
  return parts_ != nullptr ? parts_->over_budget() : over_budget_;
}

bool PendingAnswer::stuck() const { return parts_ != nullptr && parts_->stuck(); }

bool PendingAnswer::NeedsModel() const {
  if (row_.options != nullptr && !row_.options->generator().absence().ok()) return false;
  if (!submitted_ || parts_ != nullptr) return true;
  if (request_ == nullptr) return asked_ && !answer_.generation.remembered;
  return !request_->WaitFor(absl::ZeroDuration()) || !request_->result().remembered;
}

bool PendingAnswer::Done(absl::Duration wait) {
  if (parts_ != nullptr) {
    if (wait > absl::ZeroDuration()) parts_->WaitForNext(wait);
    Collect();
    return answered();
  }
  const bool done = submitted_ && (request_ == nullptr || request_->WaitFor(wait));
  if (!done || row_.escalation == nullptr) return done;
  Collect();
  return answered();
}

absl::Status PendingAnswer::Await(sqlite3* db, absl::FunctionRef<absl::Status()> meanwhile) {
  if (fork_guard_.forked()) return ForkGuard::Error();
  // Twice where the answer is escalated.
  do {
    // Where even this one finds no room, its answer is that there is none: a caller with one prompt
    // at a time does not wait in line for a queue of 100,000 to move.
    if (!Submit()) submitted_ = true;
    if (!over_budget_.ok()) StatementCall::Note(std::string(over_budget_.message()));
    // Of this kind only an interrupt is, while it was submitted.
    if (absl::IsCancelled(answer_.generation.status)) return answer_.generation.status;
    if (parts_ != nullptr) {
      RETURN_IF_ERROR(parts_->AwaitNext(db, meanwhile));
      Collect();
      continue;
    }
    if (request_ == nullptr) continue;
    absl::Status waited = lm::Await(db, *request_, meanwhile);
    const bool late = absl::IsDeadlineExceeded(waited);
    if (!waited.ok() && (!late || ends_statement())) return waited;
    if (late) {  // the statement's time: this row's failure, and that of those to come
      StatementCall::Note(std::string(waited.message()));
      answer_.generation.status = std::move(waited);
      request_.reset();
    }
    Collect();
  } while (!answered());
  if (absl::IsCancelled(answer_.generation.status)) return answer_.generation.status;
  if (std::exchange(counted_, true)) return absl::OkStatus();
  if (const std::shared_ptr<RunningWork> work = StatementCall::Work()) {
    const Generation& generation = answer_.generation;
    work->CountAnswer(answer_.null_prompt || generation.status.ok(),
                      generation.remembered ? 0 : generation.tokens_out);
  }
  return absl::OkStatus();
}

void PendingAnswer::Collect() {
  CollectParts();
  if (escalated_ && !submitted_) Submit();  // there was no room before
  if (request_ == nullptr || !request_->WaitFor(absl::ZeroDuration())) return;
  Take();
  if (!IsDoubtful()) {
    row_.escalation.reset();
    return;
  }
  const std::shared_ptr<const Escalation> escalation = std::move(row_.escalation);
  row_.options = escalation->options;
  row_.weighs = false;
  escalated_ = true;
  submitted_ = false;
  Submit();
}

void PendingAnswer::Take() {
  answer_.generation = request_->result();
  share_.Settle(answer_.generation);
  answer_.generation.status = GenerationStatus(answer_.generation);
  request_.reset();
}

bool PendingAnswer::IsDoubtful() const {
  return row_.escalation != nullptr && answer_.generation.status.ok() &&
         !row_.options->session().only_counts() &&
         row_.escalation->confidence(answer_.generation) < row_.escalation->below;
}

absl::Status ResultAnswer(sqlite3_context* context, const PendingAnswer& pending, AnswerType type) {
  return ResultAnswer(context, pending.answer(), pending.on_error(),
                      pending.several() ? AnswerType::kJson : type);
}

}  // namespace lm
