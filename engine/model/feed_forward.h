// The feed-forward of a layer: one, or experts (model_spec.h has the formulas).
#ifndef LM_ENGINE_MODEL_FEED_FORWARD_H_
#define LM_ENGINE_MODEL_FEED_FORWARD_H_

#include "absl/status/status.h"
#include "engine/model/layer_run.h"

namespace lm {

// Adds to x what the feed-forward makes of it; `shift` is the layer's state of its mixers' last
// inputs. REQUIRES: the layer has one.
absl::Status FeedForward(const LayerRun& run, const StateLayer& shift);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_FEED_FORWARD_H_
