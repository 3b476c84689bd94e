// The one place where exceptions end: everything SQLite calls runs inside Guarded().
//
//   int Next(sqlite3_vtab_cursor* c) noexcept {
//     return ReportTo(c->pVtab, Guarded([&] { return static_cast<Cursor*>(c)->Next(); }));
//   }
#ifndef LM_EXTENSION_HOST_BOUNDARY_H_
#define LM_EXTENSION_HOST_BOUNDARY_H_

#include <utility>

#include "absl/status/status.h"
#include "engine/base/default_rounding.h"
#include "engine/base/out_of_memory.h"

namespace lm {

// Runs body(), which returns an absl::Status, however the host's thread rounds; an exception
// becomes one.
template <typename Body>
absl::Status Guarded(Body&& body) noexcept {
  ReadyToThrow();
  const DefaultRounding rounding;
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    return CurrentExceptionAsStatus();
  }
}

}  // namespace lm

#endif  // LM_EXTENSION_HOST_BOUNDARY_H_
