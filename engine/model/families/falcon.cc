// "falcon": Falcon 7B and 40B (Almazrouei et al. 2023, arXiv 2311.16867).
//
// Differs from llama: LayerNorm; q, k and v are one tensor; GELU without a gate; attention and
// feed-forward have the same input, except that the 40B model has a norm of its own for attention,
// attn_norm_2; the halves of a head turn together.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeFalcon(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec, NormKind::kLayer));
  spec->ropes[0].pairing = RopePairing::kHalves;
  const bool own_norm = keys.HasTensor("blk.0.attn_norm_2.weight");
  for (LayerSpec& layer : spec->layers) {
    layer.mixer_norm = own_norm ? "attn_norm_2" : "attn_norm";
    layer.feed_forward_norm = "attn_norm";
    layer.parallel = true;
    layer.feed_forward.gated = false;
    layer.feed_forward.activation = Activation::kGeluTanh;
  }
  return absl::OkStatus();
}

}  // namespace lm
