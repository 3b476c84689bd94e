// "mimo2": MiMo-V2-Flash and V2.5 (Xiaomi 2026), their text models.
//
// Differs from llama: values are narrower than keys; what attention gives is scaled; some layers'
// heads have a sink, a score without a value; the halves of a part of a head turn together. Layers
// with a window have KV heads and a rope base of their own. Some layers have experts, chosen by a
// sigmoid with a bias, their weights normalised.
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeMimo2(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(keys, {.gate = RouterGate::kSigmoid}, spec));
  spec->ropes[0].pairing = RopePairing::kHalves;
  RETURN_IF_ERROR(DescribeStatedWindows(keys, /*base=*/10000, spec));
  ASSIGN_OR_RETURN(const double scale, keys.NotNegativeOr("attention.value_scale", 0));
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    LayerSpec& layer = spec->layers[i];
    AttentionSpec& attention = *layer.attention();
    if (scale > 0) attention.out_scale = static_cast<float>(scale);
    attention.sinks = keys.HasTensor(absl::StrCat("blk.", i, ".attn_sinks.weight"));
    if (!keys.HasTensor(absl::StrCat("blk.", i, ".ffn_gate_inp.weight"))) {
      layer.feed_forward.experts.reset();
    }
  }
  return absl::OkStatus();
}

}  // namespace lm
