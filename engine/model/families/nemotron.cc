// "nemotron": Nemotron-4, Minitron (Parmar et al. 2024, arXiv 2402.16819).
//
// Differs from llama: LayerNorm; the square of a ReLU without a gate; the halves of a part of each
// head turn together.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeNemotron(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec, NormKind::kLayer));
  spec->ropes[0].pairing = RopePairing::kHalves;
  for (LayerSpec& layer : spec->layers) {
    layer.feed_forward.gated = false;
    layer.feed_forward.activation = Activation::kRelu2;
  }
  return absl::OkStatus();
}

}  // namespace lm
