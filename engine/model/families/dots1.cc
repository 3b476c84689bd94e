// "dots1": dots.llm1 (rednote 2025, arXiv 2506.05767); "bailingmoe2": Ling 2 (inclusionAI 2025,
// arXiv 2510.22115); "hy_v3": Hunyuan 3 (Tencent 2026).
//
// Differs from llama: each head of q and k is normed; experts are chosen by what the file says,
// with a bias, and some see every row; the halves of a head (of a part of it, in Ling) turn
// together. Of Hunyuan 3 the layers with experts are those that have a router.
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeDots1(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(keys, {.normalised = false, .shared = true}, spec));
  spec->ropes[0].pairing = RopePairing::kHalves;
  for (LayerSpec& layer : spec->layers) layer.attention()->head_norm = HeadNorm::kEach;
  return absl::OkStatus();
}

absl::Status DescribeHyV3(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  ModelSpec with_experts = *spec;
  RETURN_IF_ERROR(DescribeExperts(keys,
                                  {.gate = RouterGate::kSigmoid,
                                   .normalised = false,
                                   .shared = true,
                                   .shared_count = 1,
                                   .share_width = true},
                                  &with_experts));
  spec->ropes[0].pairing = RopePairing::kHalves;
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    LayerSpec& layer = spec->layers[i];
    layer.attention()->head_norm = HeadNorm::kEach;
    if (keys.HasTensor(absl::StrCat("blk.", i, ".ffn_gate_inp.weight"))) {
      layer.feed_forward = with_experts.layers[i].feed_forward;
    }
  }
  return absl::OkStatus();
}

}  // namespace lm
