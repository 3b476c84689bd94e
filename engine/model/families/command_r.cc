// "command-r", "cohere2": Command R, Command R7B, Aya (Cohere 2024).
//
// Differs from llama: LayerNorm; attention and feed-forward have the same input; the logits have a
// factor. Command R+ norms each head of q and k, with gains of its own. Of cohere2 three
// of four layers see a window, and only in these positions turn.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeCommandR(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec, NormKind::kLayer));
  spec->ropes[0].pairing = RopePairing::kAdjacent;
  ASSIGN_OR_RETURN(const double logit_scale, keys.NotNegativeOr("logit_scale", 0));
  if (logit_scale != 0) spec->logit_scale = static_cast<float>(logit_scale);
  const bool head_norms = keys.HasTensor("blk.0.attn_q_norm.weight");
  for (LayerSpec& layer : spec->layers) {
    if (head_norms) layer.attention()->head_norm = HeadNorm::kOwnGain;
    layer.feed_forward_norm = layer.mixer_norm;
    layer.parallel = true;
  }
  return absl::OkStatus();
}

absl::Status DescribeCohere2(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeCommandR(keys, spec));
  ASSIGN_OR_RETURN(const int64_t declared,
                   keys.Int("attention.sliding_window", 1, int64_t{1} << 40));
  ASSIGN_OR_RETURN(const std::vector<bool> windowed, ReadWindowPattern(keys, *spec, 4));
  IgnoreWindowBase(keys);
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    AttentionSpec& attention = *spec->layers[i].attention();
    if (!windowed[i]) {
      attention.rope = -1;
    } else if (declared < spec->context_length) {
      attention.window = declared;
    }
  }
  return absl::OkStatus();
}

}  // namespace lm
