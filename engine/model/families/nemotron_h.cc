// "nemotron_h", "nemotron_h_moe": Nemotron-H, Nemotron Nano 2 and 3 (NVIDIA 2025, arXiv
// 2504.03624).
//
// A layer is one thing: a state space where it has neither KV heads nor a feed-forward, attention
// whose positions do not turn, or a feed-forward: the square of a ReLU without a gate, or such
// experts, chosen by a sigmoid with a bias, which may see a narrower x, and one that sees every row
// as it is.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeNemotronH(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  keys.Has("attention.layer_norm_epsilon");
  ASSIGN_OR_RETURN(const StateSpaceSpec space, ReadStateSpace(keys));
  ModelSpec with_experts = *spec;
  RETURN_IF_ERROR(DescribeExperts(
      keys,
      {.gate = RouterGate::kSigmoid, .normalised = false, .shared = true, .share_width = true},
      &with_experts));
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    LayerSpec& layer = spec->layers[i];
    layer.feed_forward_norm = nullptr;
    if (layer.feed_forward.exists()) {
      layer.feed_forward = with_experts.layers[i].feed_forward;
      layer.feed_forward.gated = false;
      layer.feed_forward.activation = Activation::kRelu2;
      layer.feed_forward_norm = layer.mixer_norm;
      layer.mixer_norm = nullptr;
      layer.mixer = NoMixer();
    } else if (layer.attention()->kv_heads == 0) {
      layer.mixer = space;
    } else {
      layer.attention()->rope = -1;
    }
  }
  return absl::OkStatus();
}

}  // namespace lm
