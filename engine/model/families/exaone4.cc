// "exaone4": EXAONE 4 (LG AI Research 2025, arXiv 2507.11407).
//
// As olmo2 in its norms, but each head of q and k is normed by itself. Of the model of 64 layers
// three of four see a window, and only in these positions turn.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeExaone4(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  spec->ropes[0].pairing = RopePairing::kHalves;
  const bool has_windows = spec->num_layers() == 64;
  ASSIGN_OR_RETURN(const int64_t declared,
                   keys.IntOr("attention.sliding_window", 0, int64_t{1} << 40, 4096));
  ASSIGN_OR_RETURN(const std::vector<bool> windowed, ReadWindowPattern(keys, *spec, 4));
  IgnoreWindowBase(keys);
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    LayerSpec& layer = spec->layers[i];
    layer.attention()->head_norm = HeadNorm::kEach;
    if (has_windows) {
      layer.attention()->rope = windowed[i] ? 0 : -1;
      if (windowed[i] && declared < spec->context_length) layer.attention()->window = declared;
    }
    layer.mixer_norm = layer.feed_forward_norm = nullptr;
    layer.post_mixer_norm = "post_attention_norm";
    layer.post_feed_forward_norm = "post_ffw_norm";
  }
  return absl::OkStatus();
}

}  // namespace lm
