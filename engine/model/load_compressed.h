// The weights of compressed attention.
#ifndef LM_ENGINE_MODEL_LOAD_COMPRESSED_H_
#define LM_ENGINE_MODEL_LOAD_COMPRESSED_H_

#include <string>

#include "absl/status/status.h"
#include "engine/model/weight_loader.h"

namespace lm {

// Of a layer whose tensors' names begin with `prefix`.
absl::Status LoadCompressed(const ModelSpec& spec, const AttentionSpec& attention,
                            const std::string& prefix, WeightLoader* loader, MixerWeights* mixer);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_LOAD_COMPRESSED_H_
