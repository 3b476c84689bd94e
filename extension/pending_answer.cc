#include "extension/pending_answer.h"

#include <utility>

#include "engine/base/status_macros.h"
#include "extension/interrupt.h"

namespace lm {

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
    absl::StatusOr<std::shared_ptr<Request>> request = row_.options->session().Submit(
        **row_.prompt, row_.system->value_or(""), row_.options->generation);
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

bool PendingAnswer::Done(absl::Duration wait) {
  return submitted_ && (request_ == nullptr || request_->WaitFor(wait));
}

absl::Status PendingAnswer::Await(sqlite3* db) {
  if (fork_guard_.forked()) return ForkGuard::Error();
  // Where even this one finds no room, its answer is that there is none: those who come with one
  // prompt at a time do not wait in line for a queue of 100,000 to move.
  if (!Submit()) submitted_ = true;
  if (request_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(lm::Await(db, *request_));
  answer_.generation = request_->result();
  answer_.generation.status = GenerationStatus(answer_.generation);
  request_.reset();
  return absl::OkStatus();
}

}  // namespace lm
