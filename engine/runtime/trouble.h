// Trouble: why there is no answer where what was asked need not be the reason. A status takes it
// along, through all that copies it.
//
//   return WithTrouble(absl::UnavailableError("connection refused"), Trouble::kOutage);
//   ...
//   if (TroubleOf(generation.status) == Trouble::kOutage) ...      // others would fare no better
#ifndef LM_ENGINE_RUNTIME_TROUBLE_H_
#define LM_ENGINE_RUNTIME_TROUBLE_H_

#include "absl/status/status.h"

namespace lm {

enum class Trouble {
  kNone,     // nobody says that it is anything but what was asked
  kServer,   // the server failed: at this request, or at all of them now
  kRefusal,  // it refuses this one, or all of them, and goes on doing so
  kOutage,   // no server was reached
  kAccount,  // the key or the money: all are refused, until somebody does something about it
};

absl::Status WithTrouble(absl::Status status, Trouble trouble);
Trouble TroubleOf(const absl::Status& status);

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_TROUBLE_H_
