// When a model is lost, with all that its engine was asked.
#ifndef LM_ENGINE_RUNTIME_MODEL_LOSS_H_
#define LM_ENGINE_RUNTIME_MODEL_LOSS_H_

#include "absl/status/status.h"

namespace lm {

// Whether a model that gave this error cannot be used any more: its device is gone, or its packed
// weights are damaged.
inline bool IsModelLoss(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDataLoss(status);
}

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_MODEL_LOSS_H_
