// "muse-glimmer": Muse Glimmer (2026).
//
// Differs from llama: the embedding is normed, without a gain; each head of q and k is normed; the
// output of attention has a gate of its own; what mixer and feed-forward add to x is normed too,
// with an epsilon that is none of the file's. Three of four layers see a window, and only in these
// positions turn. The logits are scaled and capped.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeMuseGlimmer(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(keys.Int("attention.sliding_window", 1, int64_t{1} << 40).status());
  RopeSpec& rope = spec->ropes[0];
  rope.pairing = RopePairing::kAdjacent;
  ASSIGN_OR_RETURN(const double base, keys.PositiveOr("rope.freq_base_swa", rope.base));
  RETURN_IF_ERROR(DescribeWindows(keys, /*period=*/4, base, spec));
  ASSIGN_OR_RETURN(const double logit_scale, keys.Positive("logit_scale"));
  ASSIGN_OR_RETURN(const double logit_softcap, keys.NotNegativeOr("final_logit_softcapping", 30));
  spec->logit_scale = static_cast<float>(logit_scale);
  spec->logit_softcap = static_cast<float>(logit_softcap);
  spec->plain_embedding_norm = true;
  spec->post_norm_eps = 1e-8f;
  for (LayerSpec& layer : spec->layers) {
    AttentionSpec& attention = *layer.attention();
    attention.head_norm = HeadNorm::kEach;
    attention.output_gate = OutputGate::kOwn;
    if (attention.rope == 0) attention.rope = -1;
    layer.post_mixer_norm = "post_attention_norm";
    layer.post_feed_forward_norm = "post_ffw_norm";
  }
  return absl::OkStatus();
}

}  // namespace lm
