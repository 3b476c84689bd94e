// "hunyuan-dense", "hunyuan-moe": Hunyuan (Tencent 2024, arXiv 2411.02265).
//
// Differs from llama: each head of q and k is normed, after it has turned; the halves of a head
// turn together. The weights of experts chosen are normalised, and one sees every row. Some files
// of the dense models say that they have one expert.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeHunyuan(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  const bool dense = keys.architecture() == "hunyuan-dense";
  RETURN_IF_ERROR(DescribeExperts(keys, {.one_is_none = dense, .shared = true}, spec));
  spec->ropes[0].pairing = RopePairing::kHalves;
  for (LayerSpec& layer : spec->layers) {
    layer.attention()->head_norm = HeadNorm::kEach;
    layer.attention()->norms_after_turning = true;
  }
  return absl::OkStatus();
}

}  // namespace lm
