// "gemma2": Gemma 2 (Gemma Team 2024, arXiv 2408.00118).
//
// As gemma, and: what mixer and feed-forward add to x is normed too; every other layer sees a
// window; the scores of attention and the logits are capped.
#include <cmath>

#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeGemma2(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeGemma(keys, spec));
  ASSIGN_OR_RETURN(const int64_t declared,
                   keys.IntOr("attention.sliding_window", 1, int64_t{1} << 40, 4096));
  const int64_t window = declared < spec->context_length ? declared : 0;
  ASSIGN_OR_RETURN(const std::vector<bool> windowed, ReadWindowPattern(keys, *spec, 2));
  ASSIGN_OR_RETURN(const int32_t rope, AddWindowBase(keys, spec));
  ASSIGN_OR_RETURN(const double softcap, keys.NotNegativeOr("attn_logit_softcapping", 50));
  ASSIGN_OR_RETURN(const double logit_softcap, keys.NotNegativeOr("final_logit_softcapping", 30));
  spec->logit_softcap = static_cast<float>(logit_softcap);
  // The 27B model's scale is that of hidden / heads; its heads are smaller.
  const bool by_hidden = spec->num_layers() == 46;
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    LayerSpec& layer = spec->layers[i];
    AttentionSpec& attention = *layer.attention();
    if (windowed[i]) {
      attention.window = window;
      attention.rope = rope;
    }
    attention.softcap = static_cast<float>(softcap);
    if (by_hidden) {
      attention.scale = 1.0f / std::sqrt(static_cast<float>(spec->hidden / attention.heads));
    }
    layer.post_mixer_norm = "post_attention_norm";
    layer.post_feed_forward_norm = "post_ffw_norm";
  }
  return absl::OkStatus();
}

}  // namespace lm
