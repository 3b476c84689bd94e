#include "extension/boundary.h"

#include <exception>
#include <new>

#include "absl/strings/str_cat.h"

namespace lm {
namespace {

// Made while there is memory: copying a Status allocates nothing.
const absl::Status& OutOfMemory() {
  static const absl::Status* const status =
      new absl::Status(absl::StatusCode::kResourceExhausted, "out of memory");
  return *status;
}
[[maybe_unused]] const absl::Status& made_at_load = OutOfMemory();

}  // namespace

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
