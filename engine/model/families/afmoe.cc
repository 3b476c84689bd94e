// "afmoe": Trinity (Arcee 2025).
//
// Differs from llama: the embedding is multiplied by sqrt(hidden); each head of q and k is normed;
// the output of attention has a gate of its own; what mixer and feed-forward add to x is normed
// too. Three of four layers see a window, and only in these positions turn, the halves of a head
// together. Experts are chosen by a sigmoid with a bias, and some see every row.
#include <cmath>

#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeAfmoe(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(
      keys, {.gate = RouterGate::kSigmoid, .normalised = false, .shared = true}, spec));
  spec->embedding_scale = std::sqrt(static_cast<float>(spec->hidden));
  spec->ropes[0].pairing = RopePairing::kHalves;
  ASSIGN_OR_RETURN(const int64_t window, ReadWindow(keys, spec->context_length));
  ASSIGN_OR_RETURN(const std::vector<bool> windowed, ReadWindowPattern(keys, *spec, 4));
  ASSIGN_OR_RETURN(const int64_t declared,
                   keys.IntOr("attention.sliding_window", 0, int64_t{1} << 40, 0));
  ASSIGN_OR_RETURN(const int32_t rope, AddWindowBase(keys, spec));
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    LayerSpec& layer = spec->layers[i];
    AttentionSpec& attention = *layer.attention();
    attention.head_norm = HeadNorm::kEach;
    attention.output_gate = OutputGate::kOwn;
    if (windowed[i]) attention.window = window;
    if (windowed[i] && declared > 0) attention.rope = rope;
    if (i % 4 == 3) attention.rope = -1;
    layer.post_mixer_norm = "post_attention_norm";
    layer.post_feed_forward_norm = "post_ffw_norm";
  }
  return absl::OkStatus();
}

}  // namespace lm
