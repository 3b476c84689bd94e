// LoadLayer: one layer's weights, from a model's file.
#ifndef LM_ENGINE_MODEL_LOAD_LAYER_H_
#define LM_ENGINE_MODEL_LOAD_LAYER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/model/model_spec.h"
#include "engine/model/weight_loader.h"
#include "engine/model/weights.h"

namespace lm {

// The weights of layer `index`, under the names that its description stands for: "blk.<index>....".
// Where they are to be: they are too large (31 KiB) for the stack of a host's thread.
absl::Status LoadLayer(const ModelSpec& spec, int64_t index, WeightLoader* loader,
                       LayerWeights* layer);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_LOAD_LAYER_H_
