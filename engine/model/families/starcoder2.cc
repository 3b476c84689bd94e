// "starcoder2": StarCoder2 (Lozhkov et al. 2024, arXiv 2402.19173).
//
// Differs from llama: LayerNorm; biases everywhere; GELU without a gate; the halves of a head turn
// together.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeStarCoder2(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec, NormKind::kLayer));
  RETURN_IF_ERROR(RefuseWindow(keys, spec->context_length));
  spec->ropes[0].pairing = RopePairing::kHalves;
  for (LayerSpec& layer : spec->layers) {
    layer.feed_forward.gated = false;
    layer.feed_forward.activation = Activation::kGeluTanh;
  }
  return absl::OkStatus();
}

}  // namespace lm
