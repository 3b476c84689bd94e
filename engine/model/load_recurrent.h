// The weights of mixers with a state of fixed size that have a file of their own, each from the
// tensors of a layer, whose names begin with `prefix` ("blk.3.").
#ifndef LM_ENGINE_MODEL_LOAD_RECURRENT_H_
#define LM_ENGINE_MODEL_LOAD_RECURRENT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/weight_loader.h"

namespace lm {

absl::Status LoadKimiDelta(const ModelSpec& spec, const KimiDeltaSpec& kimi,
                           const std::string& prefix, WeightLoader* loader, MixerWeights* mixer);
absl::Status LoadRwkv(const ModelSpec& spec, const RwkvSpec& rwkv, const std::string& prefix,
                      WeightLoader* loader, MixerWeights* mixer);
// RWKV's feed-forward, of `width` values between.
absl::StatusOr<FeedForwardWeights> LoadChannelMix(const ModelSpec& spec, int64_t width, bool gated,
                                                  const std::string& prefix, WeightLoader* loader);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_LOAD_RECURRENT_H_
