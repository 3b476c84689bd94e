// AnswerQueue: submit many prompts, keep a number of them under way, take the answers in order.
//
//   AnswerQueue queue;
//   while (rows.Next() || !queue.empty()) {
//     while (queue.HasRoom() && rows.Next()) queue.Push({.prompt = ..., .options = options});
//     RETURN_IF_ERROR(queue.AwaitFront(db));
//     Use(queue.front());
//     queue.Pop();
//   }
//
// Whoever has many rows and wants them decoded together goes through this: it bounds what is under
// way (and what is in memory) however many rows come, gets along with an engine whose queue is
// full, and cancels what is left when it is destroyed.
#ifndef LM_EXTENSION_BATCH_ANSWER_QUEUE_H_
#define LM_EXTENSION_BATCH_ANSWER_QUEUE_H_

#include <cstddef>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "engine/runtime/generator.h"
#include "extension/batch/pending_answer.h"

namespace lm {

// Not thread-safe.
class AnswerQueue {
 public:
  bool empty() const { return rows_.empty(); }
  size_t size() const { return rows_.size(); }
  bool HasRoom() const { return rows_.size() < most_; }

  // Submits the row, or, where the engine's queue is full, as soon as an answer has come. Never
  // fails: a prompt that is refused is answered so.
  void Push(RowPrompt row);
  // The same for rows that are known together: they are submitted in the order of their texts, so
  // that those with a common beginning come one after the other and find it in the cache, however
  // small that is. Answers come in the order of `rows` all the same.
  void PushTogether(std::vector<RowPrompt> rows);

  // Waits for the oldest row's answer, as PendingAnswer::Await() does. Cancelled on an interrupt.
  // REQUIRES: !empty().
  absl::Status AwaitFront(sqlite3* db,
                          absl::FunctionRef<absl::Status()> meanwhile = NothingMeanwhile);
  // Whether AwaitFront() would return at once. Submits what waits. REQUIRES: !empty().
  bool IsFrontDone();
  // Waits at most this long for the oldest row's answer, whatever happens meanwhile. REQUIRES:
  // !empty().
  void WaitForFront(absl::Duration wait) { rows_.front().Done(wait); }
  // REQUIRES: AwaitFront has returned OK for it.
  const RowAnswer& front() const { return rows_.front().answer(); }
  // The oldest row, whether its answer has come or not.
  const PendingAnswer& front_row() const { return rows_.front(); }
  OnError front_on_error() const { return rows_.front().on_error(); }
  void Pop();

 private:
  void Append(RowPrompt row);
  void SubmitMore();

  size_t most_ = Generator::kMostUnderWay;
  std::deque<PendingAnswer> rows_;
  std::deque<PendingAnswer*> waiting_;  // of rows_, to be submitted in this order
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_ANSWER_QUEUE_H_
