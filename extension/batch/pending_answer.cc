#include "extension/batch/pending_answer.h"

#include <utility>

#include "engine/base/status_macros.h"
#include "extension/connection/await.h"
#include "extension/connection/own_options.h"
#include "extension/connection/scalar_function.h"
#include "extension/connection/statement_call.h"

namespace lm {
namespace {

// REQUIRES: the row has a prompt.
absl::StatusOr<std::shared_ptr<Request>> SubmitRow(const RowPrompt& row) {
  TextRequest request{.prompt = **row.prompt, .options = row.options->generation};
  if (row.embed.has_value()) {
    request.task = row.embed->ranks ? Task::kRank : Task::kEmbed;
    request.question = row.question;
    request.pooling = row.embed->pooling;
  } else {
    request.system = row.options->SystemOf(*row.system);
    if (row.chooses) request.task = Task::kChoose;
    request.question = row.question;
    request.begun = row.begun;
  }
  return row.options->session().Submit(std::move(request));
}

}  // namespace

PendingAnswer::~PendingAnswer() {
  // In a forked child, whose locks this takes may never be let go.
  if (request_ != nullptr && !fork_guard_.forked()) request_->Cancel();
}

void PendingAnswer::Refuse(absl::Status status) {
  submitted_ = true;
  answer_.generation.status = std::move(status);
}

bool PendingAnswer::Submit() {
  if (submitted_) return true;
  if (!row_.prompt.ok()) {
    Refuse(row_.prompt.status());
  } else if (!row_.prompt->has_value()) {
    submitted_ = answer_.null_prompt = true;
  } else if (!row_.system.ok()) {
    Refuse(row_.system.status());
  } else {
    absl::StatusOr<std::shared_ptr<Request>> request = SubmitRow(row_);
    if (absl::IsResourceExhausted(request.status())) {
      answer_.generation.status = request.status();
      return false;
    }
    submitted_ = true;
    if (request.ok()) {
      request_ = *std::move(request);
    } else {
      Refuse(request.status());
    }
  }
  row_.prompt = std::nullopt;
  row_.system = std::nullopt;
  return true;
}

bool PendingAnswer::NeedsModel() const {
  if (!submitted_) return true;
  if (request_ == nullptr) return false;
  return !request_->WaitFor(absl::ZeroDuration()) || !request_->result().remembered;
}

bool PendingAnswer::Done(absl::Duration wait) {
  return submitted_ && (request_ == nullptr || request_->WaitFor(wait));
}

absl::Status PendingAnswer::Await(sqlite3* db, absl::FunctionRef<absl::Status()> meanwhile) {
  if (fork_guard_.forked()) return ForkGuard::Error();
  // Where even this one finds no room, its answer is that there is none: those who come with one
  // prompt at a time do not wait in line for a queue of 100,000 to move.
  if (!Submit()) submitted_ = true;
  // Of this kind only an interrupt is, while it was submitted.
  if (absl::IsCancelled(answer_.generation.status)) return answer_.generation.status;
  if (request_ != nullptr) {
    RETURN_IF_ERROR(lm::Await(db, *request_, meanwhile));
    Collect();
  }
  if (std::exchange(counted_, true)) return absl::OkStatus();
  if (const std::shared_ptr<RunningWork> work = StatementCall::Work()) {
    const Generation& generation = answer_.generation;
    work->CountAnswer(answer_.null_prompt || generation.status.ok(),
                      generation.remembered ? 0 : generation.tokens_out);
  }
  return absl::OkStatus();
}

void PendingAnswer::Collect() {
  if (request_ == nullptr || !request_->WaitFor(absl::ZeroDuration())) return;
  answer_.generation = request_->result();
  answer_.generation.status = GenerationStatus(answer_.generation);
  request_.reset();
}

absl::StatusOr<RowPrompt> ReadRow(const Call& call) {
  RowPrompt row{.prompt = call.Text(0, "prompt"), .system = call.Text(1, "system")};
  if (row.prompt.ok() && !row.prompt->has_value()) return row;
  if (row.system.ok() && row.system->has_value()) {
    RETURN_IF_ERROR(CheckNotOptions(**row.system, "system"));
  }
  ASSIGN_OR_RETURN(CallOptions options, call.Options(2));
  row.options = std::make_shared<const CallOptions>(std::move(options));
  return row;
}

}  // namespace lm
