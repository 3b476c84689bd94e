// "phi2": Phi-1, 1.5 and 2 (Li et al. 2023, arXiv 2309.05463).
//
// Differs from llama: LayerNorm; biases everywhere, of the logits too; GELU without a gate;
// attention and feed-forward have the same input; the halves of a part of each head turn together.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribePhi2(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec, NormKind::kLayer));
  spec->ropes[0].pairing = RopePairing::kHalves;
  spec->output_bias = true;
  for (LayerSpec& layer : spec->layers) {
    layer.feed_forward_norm = layer.mixer_norm;
    layer.parallel = true;
    layer.feed_forward.gated = false;
    layer.feed_forward.activation = Activation::kGeluTanh;
  }
  return absl::OkStatus();
}

}  // namespace lm
