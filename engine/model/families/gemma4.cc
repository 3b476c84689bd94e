// "gemma4": Gemma 4 (Google 2026).
//
// As gemma, and: heads of q, k and v are normed, v's without a gain; what mixer and feed-forward
// add to x is normed too, and x is scaled behind each layer. Most layers see a window, with
// narrower heads, more KV heads and a rope base of their own; in the others only the pairs that
// rope_freqs leaves turn, and values may be the keys. The last layers read the keys and values of
// the last ones that have some. Small models add an embedding of the token to each layer
// (per_layer_input); large ones have experts beside the feed-forward.
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {
namespace {

absl::Status DescribeWindowedHeads(KeyReader& keys, int64_t dim, int64_t window,
                                   AttentionSpec* attention) {
  attention->key_dim = attention->value_dim = dim;
  attention->window = window;
  attention->rope = 1;
  if (attention->q_cols() <= kMaxDim) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", keys.Key("attention.key_length_swa"), "' = ",
                                                 dim, " makes heads of more than ", kMaxDim));
}

}  // namespace

absl::Status DescribeGemma4(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeGemma(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(keys, {}, spec));
  const int64_t layers = spec->num_layers(), blocks = layers + spec->skipped_blocks;
  ASSIGN_OR_RETURN(const int64_t declared,
                   keys.Int("attention.sliding_window", 1, int64_t{1} << 40));
  const int64_t window = declared < spec->context_length ? declared : 0;
  ASSIGN_OR_RETURN(const std::vector<bool> windowed, NeedWindowPattern(keys, *spec));
  const int64_t full_dim = spec->layers[0].attention()->key_dim;
  ASSIGN_OR_RETURN(const int64_t dim,
                   keys.IntOr("attention.key_length_swa", 2, kMaxHeadDim, full_dim));
  ASSIGN_OR_RETURN(const int64_t value_dim,
                   keys.IntOr("attention.value_length_swa", 2, kMaxHeadDim, dim));
  RopeSpec turn = {.pairing = spec->ropes[0].pairing};
  ASSIGN_OR_RETURN(turn.dim, keys.IntOr("rope.dimension_count_swa", 2, dim, dim));
  ASSIGN_OR_RETURN(turn.base, keys.PositiveOr("rope.freq_base_swa", 10000));
  if (dim != value_dim || dim % 2 != 0 || turn.dim % 2 != 0 ||
      full_dim != spec->layers[0].attention()->value_dim) {
    return absl::InvalidArgumentError(
        absl::StrCat("heads of keys and values must be even and alike, got ", dim, " and ",
                     value_dim, " with a window, ", full_dim, " and ",
                     spec->layers[0].attention()->value_dim, " without, of which turn ", turn.dim));
  }
  spec->ropes.push_back(turn);
  for (int64_t i = 0; i < layers; ++i) {
    LayerSpec& layer = spec->layers[i];
    AttentionSpec& attention = *layer.attention();
    attention.head_norm = HeadNorm::kEach;
    attention.value_norm = true;
    attention.scale = 1;
    if (windowed[i]) RETURN_IF_ERROR(DescribeWindowedHeads(keys, dim, window, &attention));
    attention.value_is_key = !keys.HasTensor(absl::StrCat("blk.", i, ".attn_v.weight")) &&
                             !keys.HasTensor(absl::StrCat("blk.", i, ".attn_qkv.weight"));
    layer.feed_forward.beside = layer.feed_forward.experts.has_value();
    layer.post_mixer_norm = "post_attention_norm";
    layer.post_feed_forward_norm = "post_ffw_norm";
    layer.output_scale = "layer_output_scale";
  }
  ASSIGN_OR_RETURN(const int64_t shared, keys.IntOr("attention.shared_kv_layers", 0, blocks, 0));
  RETURN_IF_ERROR(ShareKeysAndValues(keys, windowed, blocks - shared, spec));
  ASSIGN_OR_RETURN(spec->per_layer_input,
                   keys.IntOr("embedding_length_per_layer_input", 0, kMaxDim / layers, 0));
  ASSIGN_OR_RETURN(const double logit_softcap, keys.NotNegativeOr("final_logit_softcapping", 30));
  spec->logit_softcap = static_cast<float>(logit_softcap);
  return absl::OkStatus();
}

}  // namespace lm
