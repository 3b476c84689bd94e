// "gptneox": GPT-NeoX, Pythia (Black et al. 2022, arXiv 2204.06745).
//
// Differs from llama: LayerNorm; biases everywhere; q, k and v are one tensor; GELU without a gate;
// attention and feed-forward each norm the same x, where use_parallel_residual says so; the halves
// of a part of each head turn together.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeGptNeoX(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec, NormKind::kLayer));
  spec->ropes[0].pairing = RopePairing::kHalves;
  ASSIGN_OR_RETURN(const bool parallel, keys.BoolOr("use_parallel_residual", true));
  for (LayerSpec& layer : spec->layers) {
    layer.parallel = parallel;
    layer.feed_forward.gated = false;
    layer.feed_forward.activation = Activation::kGeluTanh;
  }
  return absl::OkStatus();
}

}  // namespace lm
