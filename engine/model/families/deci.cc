// "deci": Llama-3.1-Nemotron-51B, 3.3-Nemotron-Super-49B and Ultra-253B (Bercovich et al. 2025,
// arXiv 2505.00949), DeciLM.
//
// Differs from llama: each layer has numbers of heads and a width of its own, and lacks attention,
// feed-forward or both where that is 0.
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeDeci(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  spec->ropes[0].pairing = RopePairing::kAdjacent;
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    LayerSpec& layer = spec->layers[i];
    const AttentionSpec& attention = *layer.attention();
    auto refuse = [&](absl::string_view what) {
      return absl::UnimplementedError(absl::StrCat(
          "layer ", i, " has ", what, ", which is not supported in this architecture"));
    };
    if (attention.heads > 0 && attention.kv_heads == 0) {
      return refuse("heads and no KV heads (linear attention)");
    }
    if (attention.heads > 0 && !layer.feed_forward.exists()) {
      return refuse("attention and no feed-forward");
    }
    if (attention.heads == 0) {
      layer.mixer = NoMixer();
      layer.mixer_norm = nullptr;
    }
    if (!layer.feed_forward.exists()) layer.feed_forward_norm = nullptr;
  }
  return absl::OkStatus();
}

}  // namespace lm
