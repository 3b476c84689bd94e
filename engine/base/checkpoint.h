// Where a long computation asks whether anybody still waits for its result.
//
//   CheckpointScope scope([&poll] { return poll.Interrupted(); });   // by who waits, on its thread
//   ...
//   for (...) {                                                       // by the computation, there
//     if (i % 4096 == 0 && Interrupted()) break;
//   }
//   RETURN_IF_ERROR(Checkpoint());
//
// A loop may stop where it stands and leave its result unfinished, because a scope that was
// interrupted stays so: the function that has a Status to return finds out at its end. Without a
// scope on its thread a computation is never interrupted.
#ifndef LM_ENGINE_BASE_CHECKPOINT_H_
#define LM_ENGINE_BASE_CHECKPOINT_H_

#include <chrono>
#include <functional>

#include "absl/status/status.h"

namespace lm {

// True once the scope of this thread has been interrupted. The scope's question is put once in
// kCheckpointInterval at most; between, this costs a look at the clock.
bool Interrupted();
inline constexpr std::chrono::milliseconds kCheckpointInterval{5};

// Cancelled where Interrupted().
absl::Status Checkpoint();

// While it lives, its question is that of its thread; within another scope it does nothing, for the
// outer one is that of who waits, and where there is no memory for a ThreadSlot.
class CheckpointScope {
 public:
  explicit CheckpointScope(std::function<bool()> question);
  ~CheckpointScope();
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;

 private:
  friend bool Interrupted();
  bool Ask();

  const std::function<bool()> question_;
  std::chrono::steady_clock::time_point next_;
  bool interrupted_ = false;
};

}  // namespace lm

#endif  // LM_ENGINE_BASE_CHECKPOINT_H_
