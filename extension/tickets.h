// Tickets: generations that one part of a statement submits and another part waits for.
#ifndef LM_EXTENSION_TICKETS_H_
#define LM_EXTENSION_TICKETS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "extension/pending_answer.h"

namespace lm {

// Of one connection; numbers are not used twice. Not thread-safe.
class Tickets {
 public:
  // Submits the row, or, where the engine's queue is full, as soon as an answer has come.
  int64_t Issue(RowPrompt row);
  // nullptr where there is no such ticket (any more).
  PendingAnswer* Find(int64_t ticket);
  // Submits what could not be submitted yet, as far as there is room.
  void SubmitMore();
  // Nobody asks for these any more: what is under way is cancelled.
  void Withdraw(const std::vector<int64_t>& tickets);

 private:
  int64_t last_ = 0;
  absl::flat_hash_map<int64_t, std::unique_ptr<PendingAnswer>> answers_;
  std::deque<int64_t> not_submitted_;
};

}  // namespace lm

#endif  // LM_EXTENSION_TICKETS_H_
