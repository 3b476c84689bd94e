// Trouble: why there is no answer, where the reason need not be the request. A status carries it,
// and so do the copies of the status.
//
//   return WithTrouble(absl::UnavailableError("connection refused"), Trouble::kOutage);
//   ...
//   if (TroubleOf(generation.status) == Trouble::kOutage) ...      // others would fare no better
#ifndef LM_ENGINE_RUNTIME_TROUBLE_H_
#define LM_ENGINE_RUNTIME_TROUBLE_H_

#include "absl/status/status.h"

namespace lm {

enum class Trouble {
  kNone,      // as far as is known, the reason is the request
  kServer,    // the server failed: at this request, or at all requests now
  kRefusal,   // the server refuses this request, or all, and will go on doing so
  kUnproven,  // no server was seen to keep to a kind of constraint, as all that have it need
  kOutage,    // no server was reached
  kAccount,   // the key or the money: all requests are refused until its owner does something
  kMemory,    // this process had none left for this request and those beside it
  kLoss,      // the model of this process is lost (model_loss.h), with all that it is asked
};

absl::Status WithTrouble(absl::Status status, Trouble trouble);
// OutOfMemory(), for which there is no memory to carry anything, is kMemory by itself.
Trouble TroubleOf(const absl::Status& status);

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_TROUBLE_H_
