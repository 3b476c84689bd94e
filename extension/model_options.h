// The JSON form of ModelOptions: the `options` of a row of lm_models.
#ifndef LM_EXTENSION_MODEL_OPTIONS_H_
#define LM_EXTENSION_MODEL_OPTIONS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/model/model.h"

namespace lm {

// Overlays the keys of a JSON object (device, threads, kv_bytes, context_length) on *options.
// InvalidArgument, naming it, for an unknown key, a wrong type or a value out of range.
absl::Status OverlayModelOptions(absl::string_view json, ModelOptions* options);

// The same way of loading.
bool SameOptions(const ModelOptions& a, const ModelOptions& b);

}  // namespace lm

#endif  // LM_EXTENSION_MODEL_OPTIONS_H_
