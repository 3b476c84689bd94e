// "olmo2": OLMo 2 and 3 (OLMo Team 2024, arXiv 2501.00656).
//
// Differs from llama: the inputs of mixer and feed-forward are not normed, but what they add to x
// is; q and k are normed over all heads together; the halves of a head turn together. Of OLMo 3,
// three of four layers see a window, and YaRN slows down only the others.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeOlmo2(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  spec->ropes[0].pairing = RopePairing::kHalves;
  for (LayerSpec& layer : spec->layers) {
    layer.attention()->head_norm = HeadNorm::kWhole;
    layer.mixer_norm = layer.feed_forward_norm = nullptr;
    layer.post_mixer_norm = "post_attention_norm";
    layer.post_feed_forward_norm = "post_ffw_norm";
  }
  IgnoreWindowBase(keys);
  return DescribeWindows(keys, /*period=*/4, /*base=*/0, spec);
}

}  // namespace lm
