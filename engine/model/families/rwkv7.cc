// "rwkv7": RWKV-7 (Peng et al. 2025, arXiv 2503.14456); "rwkv6": RWKV-6 (Peng et al. 2024, arXiv
// 2404.05892); "arwkv7": Qwen2 with its attention replaced by the first (Lin et al. 2025, arXiv
// 2501.15570), "rwkv6qwen2": by the second, as gated linear attention (Goldstein et al. 2025, arXiv
// 2505.03005).
//
// A layer is time mixing (rwkv_mixer.cc) and a feed-forward, which mixes each token with the one
// before it, too, and has squares of what is positive between. LayerNorm with biases, of the
// embedding, too. Of rwkv6 the feed-forward has a gate, and x is halved every so many layers. Of
// arwkv7 and rwkv6qwen2 norms and feed-forward are a llama's.
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {
namespace {

absl::StatusOr<RwkvSpec> ReadRwkvHeads(KeyReader& keys, const ModelSpec& spec) {
  RwkvSpec rwkv;
  ASSIGN_OR_RETURN(rwkv.head_dim, keys.Int("wkv.head_size", 1, 4096));
  if (spec.hidden % rwkv.head_dim != 0 || spec.hidden * rwkv.head_dim > kMaxDim) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", keys.Key("wkv.head_size"), "' = ", rwkv.head_dim, " does not divide '",
                     keys.Key("embedding_length"), "' = ", spec.hidden,
                     ", or their product is more than ", kMaxDim));
  }
  rwkv.heads = spec.hidden / rwkv.head_dim;
  return rwkv;
}

absl::StatusOr<RwkvSpec> ReadTimeMixing(KeyReader& keys, const ModelSpec& spec) {
  ASSIGN_OR_RETURN(RwkvSpec rwkv, ReadRwkvHeads(keys, spec));
  ASSIGN_OR_RETURN(rwkv.decay_rank, keys.Int("attention.decay_lora_rank", 1, kMaxDim));
  ASSIGN_OR_RETURN(rwkv.rate_rank, keys.Int("attention.iclr_lora_rank", 1, kMaxDim));
  ASSIGN_OR_RETURN(rwkv.value_rank, keys.Int("attention.value_residual_mix_lora_rank", 1, kMaxDim));
  ASSIGN_OR_RETURN(rwkv.gate_rank, keys.IntOr("attention.gate_lora_rank", 0, kMaxDim, 0));
  rwkv.normed = keys.HasTensor("blk.0.time_mix_ln.weight");
  if (!keys.HasTensor("blk.0.time_mix_g1.weight")) rwkv.gate_rank = 0;
  return rwkv;
}

absl::StatusOr<RwkvSpec> ReadTimeMixing6(KeyReader& keys, const ModelSpec& spec) {
  ASSIGN_OR_RETURN(RwkvSpec rwkv, ReadRwkvHeads(keys, spec));
  ASSIGN_OR_RETURN(rwkv.mix_rank, keys.Int("time_mix_extra_dim", 1, kMaxDim / 5));
  ASSIGN_OR_RETURN(rwkv.decay_rank, keys.Int("time_decay_extra_dim", 1, kMaxDim));
  return rwkv;
}

// There is no attention.
absl::Status RefuseHeads(KeyReader& keys) {
  RETURN_IF_ERROR(keys.IntOr("attention.head_count", 0, 0, 0).status());
  return keys.IntOr("attention.head_count_kv", 0, 0, 0).status();
}

absl::Status DescribeLayers(KeyReader& keys, RwkvSpec rwkv, const LayerSpec& like,
                            ModelSpec* spec) {
  const int64_t layers = spec->num_layers();
  ASSIGN_OR_RETURN(const std::vector<int64_t> widths,
                   keys.IntsOr("feed_forward_length", layers, 1, kMaxDim, 4 * spec->hidden));
  for (int64_t i = 0; i < layers; ++i) {
    rwkv.first = i == 0;
    LayerSpec& layer = spec->layers[i] = like;
    layer.mixer = rwkv;
    layer.feed_forward.width = widths[i];
  }
  return absl::OkStatus();
}

absl::Status DescribeSizesOfBoth(KeyReader& keys, ModelSpec* spec) {
  ASSIGN_OR_RETURN(const int64_t layers, DescribeSizes(keys, spec, NormKind::kLayer));
  spec->layers.resize(layers);
  spec->embedding_norm = "token_embd_norm";
  return keys.IntOr("token_shift_count", 2, 2, 2).status();
}

absl::Status DescribeLayersOfBoth(KeyReader& keys, RwkvSpec rwkv, ModelSpec* spec) {
  RETURN_IF_ERROR(RefuseHeads(keys));
  rwkv.mixes_feed_forward = true;
  LayerSpec layer;
  layer.feed_forward.gated = false;
  layer.feed_forward.activation = Activation::kRelu2;
  layer.feed_forward_norm = "attn_norm_2";
  return DescribeLayers(keys, rwkv, layer, spec);
}

}  // namespace

absl::Status DescribeRwkv6(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeSizesOfBoth(keys, spec));
  ASSIGN_OR_RETURN(RwkvSpec rwkv, ReadTimeMixing6(keys, *spec));
  rwkv.normed = true;
  RETURN_IF_ERROR(DescribeLayersOfBoth(keys, rwkv, spec));
  ASSIGN_OR_RETURN(const int64_t period, keys.IntOr("rescale_every_n_layers", 0, kMaxDim, 0));
  for (int64_t i = period - 1; period > 0 && i < spec->num_layers(); i += period) {
    spec->layers[i].output_factor = 0.5f;
  }
  return absl::OkStatus();
}

absl::Status DescribeRwkv7(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeSizesOfBoth(keys, spec));
  ASSIGN_OR_RETURN(const RwkvSpec rwkv, ReadTimeMixing(keys, *spec));
  return DescribeLayersOfBoth(keys, rwkv, spec);
}

absl::Status DescribeArwkv7(KeyReader& keys, ModelSpec* spec) {
  ASSIGN_OR_RETURN(const int64_t layers, DescribeSizes(keys, spec));
  spec->layers.resize(layers);
  RETURN_IF_ERROR(keys.IntOr("token_shift_count", 1, 1, 1).status());
  RETURN_IF_ERROR(RefuseHeads(keys));
  ASSIGN_OR_RETURN(const RwkvSpec rwkv, ReadTimeMixing(keys, *spec));
  return DescribeLayers(keys, rwkv, LayerSpec(), spec);
}

absl::Status DescribeRwkv6Qwen2(KeyReader& keys, ModelSpec* spec) {
  ASSIGN_OR_RETURN(const int64_t layers, DescribeSizes(keys, spec));
  spec->layers.resize(layers);
  RETURN_IF_ERROR(keys.IntOr("token_shift_count", 1, 1, 1).status());
  // As llama.cpp, which reads it and halves nothing.
  RETURN_IF_ERROR(keys.IntOr("rescale_every_n_layers", 0, kMaxDim, 0).status());
  ASSIGN_OR_RETURN(RwkvSpec rwkv, ReadTimeMixing6(keys, *spec));
  ASSIGN_OR_RETURN(const int64_t heads, keys.IntOr("attention.head_count", 0, kMaxDim, 0));
  ASSIGN_OR_RETURN(const int64_t kv_heads,
                   keys.IntOr("attention.head_count_kv", 0, rwkv.heads, heads));
  rwkv.linear_kv_heads = kv_heads > 0 ? kv_heads : rwkv.heads;
  if (rwkv.heads % rwkv.linear_kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("'", keys.Key("attention.head_count_kv"),
                                                   "' = ", kv_heads, " does not divide the ",
                                                   rwkv.heads, " heads"));
  }
  return DescribeLayers(keys, rwkv, LayerSpec(), spec);
}

}  // namespace lm
