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
  ASSIGN_OR_RETURN(const int64_t window, ReadWindow(keys, spec->context_length));
  ASSIGN_OR_RETURN(const int64_t declared,
                   keys.IntOr("attention.sliding_window", 0, int64_t{1} << 40, 0));
  ASSIGN_OR_RETURN(const std::vector<bool> windowed,
                   ReadWindowPattern(keys, spec->num_layers() + spec->skipped_blocks, 4));
  const RopeSpec& rope = spec->ropes[0];
  if (declared > 0) {
    spec->ropes.push_back({.dim = rope.dim, .base = rope.base, .pairing = rope.pairing});
  }
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    LayerSpec& layer = spec->layers[i];
    layer.attention()->head_norm = HeadNorm::kWhole;
    if (declared > 0 && windowed[i]) {
      layer.attention()->window = window;
      layer.attention()->rope = 1;
    }
    layer.mixer_norm = layer.feed_forward_norm = nullptr;
    layer.post_mixer_norm = "post_attention_norm";
    layer.post_feed_forward_norm = "post_ffw_norm";
  }
  return absl::OkStatus();
}

}  // namespace lm
