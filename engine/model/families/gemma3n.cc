// "gemma3n": Gemma 3n E2B and E4B, their text models (Google 2025).
//
// As gemma, and: several residual streams, of which a layer computes with the first; a low-rank way
// around each mixer; an embedding of the token for each layer. Heads of q, k and v are normed, v's
// without a gain; what mixer and feed-forward add to x is normed too. The gates of the first layers
// are cut down to their greatest values. Four of five layers see a window and turn with a base of
// their own; the last layers read the keys and values of the last ones that have some.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {
namespace {

// As llama.cpp has them for all files.
constexpr int64_t kStreams = 4;
constexpr int64_t kInputWidth = 256;
constexpr int64_t kOwnKeys = 20;         // layers
constexpr int64_t kSparse = 10;          // layers
constexpr float kSparsity = 1.6448534f;  // one of twenty of a normal distribution is above it

// How far each layer's gate is cut: minus infinity stands for not at all.
absl::Status ReadSparsity(KeyReader& keys, ModelSpec* spec) {
  const int64_t layers = spec->num_layers();
  ASSIGN_OR_RETURN(const std::vector<float> scales,
                   keys.Floats("activation_sparsity_scale", layers + spec->skipped_blocks));
  for (int64_t i = 0; i < layers; ++i) {
    FeedForwardSpec& feed_forward = spec->layers[i].feed_forward;
    if (scales.empty()) {
      feed_forward.sparsity = i < kSparse ? kSparsity : 0;
    } else if (std::isfinite(scales[i]) && scales[i] > 0) {
      feed_forward.sparsity = scales[i];
    } else if (scales[i] != -INFINITY) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", keys.Key("activation_sparsity_scale"), "' of layer ", i,
                       " must be > 0 or minus infinity, got ", scales[i]));
    }
    if (feed_forward.sparsity > 0 && feed_forward.width < 2) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", keys.Key("feed_forward_length"), "' must be 2 or more, got ", feed_forward.width));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DescribeGemma3n(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeGemma(keys, spec));
  const int64_t layers = spec->num_layers(), blocks = layers + spec->skipped_blocks;
  ASSIGN_OR_RETURN(const double window_base, keys.PositiveOr("rope.freq_base_swa", 10000));
  RETURN_IF_ERROR(DescribeWindows(keys, /*period=*/5, window_base, spec));
  ASSIGN_OR_RETURN(spec->streams, keys.IntOr("altup.num_inputs", 2, kMostStreams, kStreams));
  RETURN_IF_ERROR(keys.IntOr("altup.active_idx", 0, 0, 0).status());
  ASSIGN_OR_RETURN(spec->per_layer_input, keys.IntOr("embedding_length_per_layer_input", 1,
                                                     kMaxDim / layers, kInputWidth));
  RETURN_IF_ERROR(ReadSparsity(keys, spec));
  ASSIGN_OR_RETURN(const double logit_softcap, keys.NotNegativeOr("final_logit_softcapping", 30));
  spec->logit_softcap = static_cast<float>(logit_softcap);
  std::vector<bool> windowed;
  for (int64_t i = 0; i < layers; ++i) {
    LayerSpec& layer = spec->layers[i];
    AttentionSpec& attention = *layer.attention();
    windowed.push_back(attention.rope == 1);
    attention.head_norm = HeadNorm::kEach;
    attention.value_norm = true;
    attention.scale = 1;
    layer.post_mixer_norm = "post_attention_norm";
    layer.post_feed_forward_norm = "post_ffw_norm";
    layer.laurel_rank = keys.RowsOf(absl::StrCat("blk.", i, ".laurel_l.weight"));
  }
  ASSIGN_OR_RETURN(const int64_t shared, keys.IntOr("attention.shared_kv_layers", 0, layers,
                                                    std::max<int64_t>(layers - kOwnKeys, 0)));
  return ShareKeysAndValues(keys, windowed, blocks - shared, spec);
}

}  // namespace lm
