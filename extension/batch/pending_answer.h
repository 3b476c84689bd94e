// PendingAnswer: one row's prompt on its way to its answer.
//
//   PendingAnswer pending({.prompt = "Name a colour.", .system = "", .options = options});
//   pending.Submit();                            // may be too early: then Await() does it
//   ...
//   RETURN_IF_ERROR(pending.Await(db));
//   return ResultAnswer(context, pending);
//
// For many rows, AnswerQueue keeps a number of these under way.
#ifndef LM_EXTENSION_BATCH_PENDING_ANSWER_H_
#define LM_EXTENSION_BATCH_PENDING_ANSWER_H_

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "extension/batch/row_answer.h"
#include "extension/batch/row_prompt.h"
#include "extension/connection/await.h"
#include "extension/connection/spending_share.h"

namespace lm {

class MapReduce;

// Not thread-safe. Destroying it cancels a request that is under way.
class PendingAnswer {
 public:
  explicit PendingAnswer(RowPrompt row);
  // One whose answer is known already.
  PendingAnswer(RowPrompt row, RowAnswer answer);
  ~PendingAnswer();
  PendingAnswer(PendingAnswer&&);
  PendingAnswer& operator=(PendingAnswer&&) = delete;

  // Hands the prompt to the engine, once. False where the engine's queue is full, or the
  // statement's budgets have nothing left: to be tried again after some other answer has come. A
  // row that can have no answer needs none: that is true. Of a text that is read in parts the first
  // ones are handed over; Collect() goes on with it.
  bool Submit();
  // Why a budget was in the way of what was to be submitted last; OK where none was.
  const absl::Status& over_budget() const;
  bool submitted() const { return submitted_ || escalated_; }
  // Whether it is read in parts, and has no answer yet: Collect() goes on with it.
  bool in_parts() const { return parts_ != nullptr; }
  // Whether it is read in parts of which none is under way: the next one is refused so far.
  bool stuck() const;
  // Whether the answer is asked for, or given, by the model of RowPrompt::escalation.
  bool escalated() const { return escalated_; }

  // Whether Await() would return at once, or after waiting at most this long. A row that is not
  // submitted is not done.
  bool Done(absl::Duration wait = absl::ZeroDuration());

  // Whether the answer is the model's to make, or was: neither remembered nor none. REQUIRES:
  // Submit() was called.
  bool NeedsModel() const;

  // Where the answer is there, keeps it; where it is not to be relied on, asks the other model.
  // Where answers about parts are there, submits what follows of them.
  void Collect();
  // Whether it has been collected, or was never the engine's to give.
  bool answered() const { return submitted_ && request_ == nullptr && parts_ == nullptr; }

  // Waits for the answer. One that could not be submitted is tried once more; a queue that is still
  // full is then its answer. Cancelled on an interrupt of `db`'s statement, FailedPrecondition in a
  // forked child. `meanwhile` is called every few milliseconds; its error ends the waiting.
  absl::Status Await(sqlite3* db, absl::FunctionRef<absl::Status()> meanwhile = NothingMeanwhile);
  // REQUIRES: Await() has returned OK, or answered().
  const RowAnswer& answer() const { return answer_; }

  OnError on_error() const {
    return row_.options != nullptr ? row_.options->generation.on_error : OnError::kError;
  }
  // Whether the answer is a JSON array of several.
  bool several() const { return row_.options != nullptr && row_.options->generation.n > 0; }

 private:
  void Refuse(absl::Status status);
  // Submit() of a row that may be read in parts.
  bool SubmitInParts();
  void CollectParts();
  // Sets aside what the answer may take at most. An error says which budget has not that much left.
  absl::Status TakeShare();
  bool ends_statement() const { return on_error() == OnError::kError; }
  // Takes the finished request's answer.
  void Take();
  bool IsDoubtful() const;

  RowPrompt row_;  // its texts are gone once they are submitted for the last time
  const ForkGuard fork_guard_;
  bool submitted_ = false;  // to the model that is asked last, so far
  bool escalated_ = false;
  bool asked_ = false;                    // the engine was handed something of it
  bool counted_ = false;                  // for lm_running
  std::shared_ptr<Request> request_;      // null: not submitted, or answered
  std::unique_ptr<MapReduce> parts_;      // null: not read in parts, or answered
  SpendingShare share_;
  absl::Status over_budget_;
  RowAnswer answer_;
};

// Makes the answer a scalar function's result, as its row's options want it: several are JSON,
// whatever `type` one would be.
absl::Status ResultAnswer(sqlite3_context* context, const PendingAnswer& pending,
                          AnswerType type = AnswerType::kText);

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_PENDING_ANSWER_H_
