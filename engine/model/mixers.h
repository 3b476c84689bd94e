// Mixers: the part of a layer in which tokens see each other (model_spec.h has the formulas).
#ifndef LM_ENGINE_MODEL_MIXERS_H_
#define LM_ENGINE_MODEL_MIXERS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/model/layer_cache.h"
#include "engine/model/layer_run.h"

namespace lm {

// What the mixer of layer `index`, the run's, makes of x, before its last product:
// (rows, MixerOutputCols). It lies in the activations. REQUIRES: the layer has a mixer.
absl::StatusOr<Tensor> Mix(const LayerRun& run, int64_t index, const LayerCache& cache);

// What the state space beside attention adds to x, in act.beside: (rows, hidden).
// REQUIRES: the layer has one.
absl::StatusOr<Tensor> MixBeside(const LayerRun& run, int64_t index, const LayerCache& cache);

// What RWKV's feed-forward sees of x, which is normed, and of the tokens before.
absl::StatusOr<Tensor> MixForFeedForward(const LayerRun& run, const RwkvSpec& spec,
                                         const StateLayer& shift);

// Adds RWKV-6's feed-forward to x: what its last product makes of `between`, behind its gate.
// REQUIRES: MixForFeedForward was called before.
absl::Status AddGated(const LayerRun& run, const RwkvSpec& spec, const ProductInput& between);

// Those of each kind. Their first product, act.mixer_input, is made.
absl::StatusOr<Tensor> Attend(const LayerRun& run, const AttentionSpec& spec, const KvLayer& kv);
absl::StatusOr<Tensor> AttendLatent(const LayerRun& run, const AttentionSpec& spec,
                                    const KvLayer& kv);
// With the states of what is pooled for attention and for its index.
absl::StatusOr<Tensor> AttendCompressed(const LayerRun& run, const AttentionSpec& spec,
                                        const RowLayers& rows, const StateLayer& pool,
                                        const StateLayer& index_pool);
absl::StatusOr<Tensor> ApplyDeltaNet(const LayerRun& run, const DeltaNetSpec& spec,
                                     const StateLayer& conv, const StateLayer& rule);
absl::StatusOr<Tensor> ApplyKimiDelta(const LayerRun& run, const KimiDeltaSpec& spec,
                                      const StateLayer& conv, const StateLayer& rule);
absl::StatusOr<Tensor> ApplyRwkv(const LayerRun& run, const RwkvSpec& spec, const StateLayer& shift,
                                 const StateLayer& rule);
absl::StatusOr<Tensor> ApplyStateSpace(const LayerRun& run, const StateSpaceSpec& spec,
                                       const StateLayer& conv, const StateLayer& rule);
absl::StatusOr<Tensor> ApplySelective(const LayerRun& run, const SelectiveSpec& spec,
                                      const StateLayer& conv, const StateLayer& rule);
absl::StatusOr<Tensor> ApplyShortConv(const LayerRun& run, const ShortConvSpec& spec,
                                      const StateLayer& conv);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_MIXERS_H_
