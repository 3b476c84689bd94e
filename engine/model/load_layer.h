#ifndef LM_ENGINE_MODEL_LOAD_LAYER_H_
#define LM_ENGINE_MODEL_LOAD_LAYER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/model/model_spec.h"
#include "engine/model/weight_loader.h"
#include "engine/model/weights.h"

namespace lm {

// The weights of layer `index`, under the names that its description stands for: "blk.<index>....".
absl::StatusOr<LayerWeights> LoadLayer(const ModelSpec& spec, int64_t index, WeightLoader* loader);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_LOAD_LAYER_H_
