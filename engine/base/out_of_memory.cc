#include "engine/base/out_of_memory.h"

#include <exception>
#include <new>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lm {
namespace {

// Never destroyed: other threads go on while exit() does its work.
const absl::Status* Make() noexcept {
  try {
    return new absl::Status(absl::StatusCode::kResourceExhausted, "out of memory");
  } catch (const std::bad_alloc&) {
    // A status without a text takes no memory.
    alignas(absl::Status) static char bytes[sizeof(absl::Status)];
    return new (bytes) absl::Status(absl::StatusCode::kResourceExhausted, "");
  }
}

[[maybe_unused]] const absl::Status& made_at_load = OutOfMemory();

// absl::Mutex takes memory of its own, 64 KiB at a time, for each thread's first wait, and ends the
// process where there is none: take the first piece now, which is enough for some hundred threads,
// and none for a graph of locks.
[[maybe_unused]] const bool locks_at_load = [] {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  static auto& mutex = *new absl::Mutex;
  absl::MutexLock lock(&mutex);
  mutex.AwaitWithTimeout(absl::Condition(
                             +[](bool* never) { return *never; },
                             [] {
                               static bool never = false;
                               return &never;
                             }()),
                         absl::ZeroDuration());
  return true;
}();

}  // namespace

const absl::Status& OutOfMemory() noexcept {
  static const absl::Status* const status = Make();
  return *status;
}

void ReadyToThrow() noexcept {
  [[maybe_unused]] volatile const int none =
      std::uncaught_exceptions();  // volatile: or it is not called
}

absl::Status CurrentExceptionAsStatus() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (const std::exception& e) {
    try {
      return absl::InternalError(absl::StrCat("unexpected failure: ", e.what()));
    } catch (...) {
      return OutOfMemory();
    }
  } catch (...) {
    return OutOfMemory();
  }
}

}  // namespace lm
