// How much of an adapter, as the options of models and of calls have it.
#ifndef LM_ENGINE_MODEL_ADAPTER_SCALE_H_
#define LM_ENGINE_MODEL_ADAPTER_SCALE_H_

#include "absl/status/statusor.h"
#include "engine/base/json.h"

namespace lm {

// InvalidArgument for what is no number, or too large a one.
absl::StatusOr<float> ReadAdapterScale(const Json& value);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_ADAPTER_SCALE_H_
