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
  const RopeSpec& rope = spec->ropes[0];
  ASSIGN_OR_RETURN(const int64_t window, ReadWindow(keys, spec->context_length));
  ASSIGN_OR_RETURN(const int64_t declared,
                   keys.IntOr("attention.sliding_window", 0, int64_t{1} << 40, 0));
  ASSIGN_OR_RETURN(const std::vector<bool> windowed,
                   ReadWindowPattern(keys, spec->num_layers() + spec->skipped_blocks, 6));
  ASSIGN_OR_RETURN(const double window_base, keys.PositiveOr("rope.freq_base_swa", 10000));
  ASSIGN_OR_RETURN(const double logit_softcap, keys.NotNegativeOr("final_logit_softcapping", 0));
  spec->logit_softcap = static_cast<float>(logit_softcap);
  spec->ropes.push_back({.dim = rope.dim, .base = window_base, .pairing = rope.pairing});
  // The 27B model's scale is that of hidden / heads; its heads are smaller.
  const bool by_hidden = spec->num_layers() == 62;
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    LayerSpec& layer = spec->layers[i];
    AttentionSpec& attention = *layer.attention();
    attention.head_norm = HeadNorm::kEach;
    if (by_hidden) {
      attention.scale = 1.0f / std::sqrt(static_cast<float>(spec->hidden / attention.heads));
    }
    if (declared > 0 && windowed[i]) {
      attention.window = window;
      attention.rope = 1;
    }
    layer.post_mixer_norm = "post_attention_norm";
    layer.post_feed_forward_norm = "post_ffw_norm";
  }
  return absl::OkStatus();
}

}  // namespace lm
