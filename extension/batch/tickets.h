// Tickets: generations that one part of a statement submits and another part waits for.
#ifndef LM_EXTENSION_BATCH_TICKETS_H_
#define LM_EXTENSION_BATCH_TICKETS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/hash_map.h"
#include "extension/batch/pending_answer.h"

namespace lm {

// Of one connection; numbers are not used twice. So that a table of any size is no matter of
// memory, few of them are requests at the engine at a time; the others are their texts, and those
// are bounded. Not thread-safe.
class Tickets {
 public:
  static constexpr size_t kMaxTickets = 100'000;
  static constexpr size_t kMaxBytes = 256 << 20;  // of prompts and system prompts
  static constexpr size_t kMaxUnderWay = 1024;

  // Submits the row, or, where enough are under way or the engine's queue is full, as soon as
  // another ticket is awaited. ResourceExhausted beyond the limits, naming the one.
  absl::StatusOr<int64_t> Issue(RowPrompt row);
  // nullptr where there is no such ticket (any more).
  PendingAnswer* Find(int64_t ticket);
  // Submits what could not be submitted yet, as far as there is room.
  void SubmitMore();
  // Cancels what is under way for these tickets: they will not be awaited.
  void Withdraw(const std::vector<int64_t>& tickets);

 private:
  struct Ticket {
    std::unique_ptr<PendingAnswer> pending;
    size_t bytes = 0;
  };

  int64_t last_ = 0;
  HashMap<int64_t, Ticket> tickets_;
  size_t bytes_ = 0;  // of all tickets_
  std::deque<int64_t> not_submitted_;
  std::deque<int64_t> under_way_;  // submitted; the first is not known to be done
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_TICKETS_H_
