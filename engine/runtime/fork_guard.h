// Tells the process that made an object from a forked child of it, where the object's threads do
// not exist and its mutexes may be locked for ever.
#ifndef LM_ENGINE_RUNTIME_FORK_GUARD_H_
#define LM_ENGINE_RUNTIME_FORK_GUARD_H_

#include <sys/types.h>
#include <unistd.h>

#include "absl/status/status.h"

namespace lm {

class ForkGuard {
 public:
  bool forked() const { return getpid() != owner_; }

  static absl::Status Error() {
    return absl::FailedPreconditionError(
        "this process was forked from one that had used lm0, whose threads it has not: open the "
        "database after fork, in a child of a process that has used no model (or that exec has "
        "started: spawn)");
  }

 private:
  const pid_t owner_ = getpid();
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_FORK_GUARD_H_
