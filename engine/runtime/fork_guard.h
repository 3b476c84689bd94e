// Tells the process that made an object from a forked child of it, where the object's threads do
// not exist and its mutexes may be locked for ever.
#ifndef LM_ENGINE_RUNTIME_FORK_GUARD_H_
#define LM_ENGINE_RUNTIME_FORK_GUARD_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/base/this_process.h"

namespace lm {

class ForkGuard {
 public:
  bool forked() const { return ThisProcess() != owner_; }

  static absl::Status Error() {
    return absl::FailedPreconditionError(
        "this process was forked from one that had used lm0, whose threads it has not: open the "
        "database after fork, in a child of a process that has used no model (or that exec has "
        "started: spawn)");
  }

 private:
  const uint64_t owner_ = ThisProcess();
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_FORK_GUARD_H_
