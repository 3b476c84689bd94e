// "gemma3": Gemma 3 text models, 270M to 27B (Gemma Team 2025, arXiv 2503.19786).
//
// As gemma, and: heads of q and k are normed; what mixer and feed-forward add to x is normed too.
// Five of six layers see a window of attention.sliding_window tokens and turn with a base of their
// own; only the others have the file's rope scaling. Without a window all layers see everything,
// and turn alike.
#include <cmath>

#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeGemma3(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeGemma(keys, spec));
  ASSIGN_OR_RETURN(const double window_base, keys.PositiveOr("rope.freq_base_swa", 10000));
  RETURN_IF_ERROR(DescribeWindows(keys, /*period=*/6, window_base, spec));
  ASSIGN_OR_RETURN(const double logit_softcap, keys.NotNegativeOr("final_logit_softcapping", 0));
  spec->logit_softcap = static_cast<float>(logit_softcap);
  // The 27B model's scale is that of hidden / heads; its heads are smaller.
  const bool by_hidden = spec->num_layers() == 62;
  for (LayerSpec& layer : spec->layers) {
    AttentionSpec& attention = *layer.attention();
    attention.head_norm = HeadNorm::kEach;
    if (by_hidden) {
      attention.scale = 1.0f / std::sqrt(static_cast<float>(spec->hidden / attention.heads));
    }
    layer.post_mixer_norm = "post_attention_norm";
    layer.post_feed_forward_norm = "post_ffw_norm";
  }
  return absl::OkStatus();
}

}  // namespace lm
