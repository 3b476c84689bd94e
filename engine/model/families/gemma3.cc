// "gemma3": Gemma 3 text models, 270M to 27B (Gemma Team 2025, arXiv 2503.19786).
//
// Differs from llama: the embedding is multiplied by sqrt(hidden); heads of q and k are normed;
// what mixer and feed-forward add to x is normed too; GELU (tanh form) in the feed-forward. Five of
// six layers see a window of attention.sliding_window tokens and turn with a base of their own;
// only the others have the file's rope scaling. Without a window all layers see everything, and
// turn alike.
#include <cmath>

#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeGemma3(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  spec->embedding_scale = std::sqrt(static_cast<float>(spec->hidden));
  RopeSpec& rope = spec->ropes[0];
  rope.pairing = RopePairing::kHalves;
  ASSIGN_OR_RETURN(const int64_t window, ReadWindow(keys, spec->context_length));
  ASSIGN_OR_RETURN(const int64_t declared,
                   keys.IntOr("attention.sliding_window", 0, int64_t{1} << 40, 0));
  // A period, or a flag for each layer.
  int64_t period = 6;
  std::vector<bool> windowed;
  constexpr char kPattern[] = "attention.sliding_window_pattern";
  if (keys.IsArray(kPattern)) {
    ASSIGN_OR_RETURN(windowed, keys.Bools(kPattern, spec->num_layers()));
  } else {
    ASSIGN_OR_RETURN(period, keys.IntOr(kPattern, 1, kMaxDim, period));
  }
  ASSIGN_OR_RETURN(const double window_base, keys.PositiveOr("rope.freq_base_swa", 10000));
  spec->ropes.push_back({.dim = rope.dim, .base = window_base, .pairing = rope.pairing});
  // The 27B model's scale is that of hidden / heads; its heads are smaller.
  const bool by_hidden = spec->num_layers() == 62;
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    LayerSpec& layer = spec->layers[i];
    AttentionSpec& attention = *layer.attention();
    attention.head_norms = true;
    if (by_hidden) {
      attention.scale = 1.0f / std::sqrt(static_cast<float>(spec->hidden / attention.heads));
    }
    if (declared > 0 && (windowed.empty() ? i % period < period - 1 : bool{windowed[i]})) {
      attention.window = window;
      attention.rope = 1;
    }
    layer.feed_forward.activation = Activation::kGeluTanh;
    layer.post_norms = true;
  }
  return absl::OkStatus();
}

}  // namespace lm
