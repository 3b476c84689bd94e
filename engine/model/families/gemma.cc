// "gemma": Gemma (Gemma Team 2024, arXiv 2403.08295).
//
// Differs from llama: the embedding is multiplied by sqrt(hidden); GELU (tanh form) in the
// feed-forward; the halves of a head turn together.
#include <cmath>

#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeGemma(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  spec->embedding_scale = std::sqrt(static_cast<float>(spec->hidden));
  spec->ropes[0].pairing = RopePairing::kHalves;
  for (LayerSpec& layer : spec->layers) {
    layer.feed_forward.activation = Activation::kGeluTanh;
  }
  return absl::OkStatus();
}

}  // namespace lm
