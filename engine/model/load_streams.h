// The weights of several residual streams (streams.h).
#ifndef LM_ENGINE_MODEL_LOAD_STREAMS_H_
#define LM_ENGINE_MODEL_LOAD_STREAMS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/weight_loader.h"

namespace lm {

// What they begin with, on the loader's backend, and what they end with, on `last`.
absl::Status LoadStreams(const ModelSpec& spec, Backend* last, WeightLoader* loader,
                         Weights* weights);
// Those of a layer, whose tensors' names begin with `prefix`.
absl::StatusOr<StreamWeights> LoadLayerStreams(const ModelSpec& spec, const std::string& prefix,
                                               WeightLoader* loader);

// Hyper-connections: of what "<prefix>_fn", "_scale" and "_base" say, and of the model's end.
absl::StatusOr<HyperWeights> LoadHyper(const ModelSpec& spec, const std::string& prefix,
                                       WeightLoader* loader);
absl::StatusOr<HyperWeights> LoadHyperEnd(const ModelSpec& spec, WeightLoader* loader);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_LOAD_STREAMS_H_
