// "mamba": Mamba and FalconMamba (Gu and Dao 2023, arXiv 2312.00752; TII 2024, arXiv 2410.05355);
// "mamba2": Mamba-2 (Dao and Gu 2024, arXiv 2405.21060). A layer is a state space and nothing else.
//
// "jamba": Jamba (AI21 2024, arXiv 2403.19887). As llama, without a rope; the layers without KV
// heads are Mamba's, with norms; some have experts, chosen by a softmax, in the place of the
// feed-forward.
//
// "plamo2": PLaMo 2 (Imajo et al. 2025, arXiv 2509.04897). As llama, and: what mixer and
// feed-forward add to x is normed too, as is each head of q and k, with gains of its own; the
// halves of a head turn together; the layers without KV heads are Mamba's, in heads, with norms.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {
namespace {

absl::StatusOr<SelectiveSpec> ReadSelective(KeyReader& keys) {
  SelectiveSpec spec;
  ASSIGN_OR_RETURN(spec.conv_width, keys.Int("ssm.conv_kernel", 2, 64));
  ASSIGN_OR_RETURN(spec.state_dim, keys.Int("ssm.state_size", 1, 4096));
  ASSIGN_OR_RETURN(spec.inner, keys.Int("ssm.inner_size", 1, kMaxDim));
  ASSIGN_OR_RETURN(spec.step_rank, keys.Int("ssm.time_step_rank", 1, kMaxDim));
  if (spec.rule_state() <= kMaxDim) return spec;
  return absl::InvalidArgumentError(
      absl::StrCat("a recurrent state of ", spec.rule_state(), " values is more than ", kMaxDim));
}

// Layers that are nothing but mixers; the keys of what they have not are 0.
template <typename Mixer>
absl::Status DescribeMixers(KeyReader& keys, const Mixer& mixer, ModelSpec* spec) {
  LayerSpec layer;
  layer.mixer = mixer;
  ASSIGN_OR_RETURN(const int64_t layers, DescribeSizes(keys, spec));
  for (const char* name : {"attention.head_count", "feed_forward_length"}) {
    RETURN_IF_ERROR(keys.IntOr(name, 0, 0, 0).status());
  }
  layer.feed_forward_norm = nullptr;
  spec->layers.assign(layers, layer);
  return absl::OkStatus();
}

}  // namespace

absl::Status DescribeMamba(KeyReader& keys, ModelSpec* spec) {
  ASSIGN_OR_RETURN(SelectiveSpec selective, ReadSelective(keys));
  ASSIGN_OR_RETURN(const bool normed, keys.BoolOr("ssm.dt_b_c_rms", false));
  if (normed) selective.norms = SelectiveSpec::Norms::kPlain;
  return DescribeMixers(keys, selective, spec);
}

absl::Status DescribeMamba2(KeyReader& keys, ModelSpec* spec) {
  ASSIGN_OR_RETURN(const StateSpaceSpec space, ReadStateSpace(keys));
  return DescribeMixers(keys, space, spec);
}

absl::Status DescribeJamba(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(keys, {.normalised = false}, spec));
  ASSIGN_OR_RETURN(SelectiveSpec selective, ReadSelective(keys));
  selective.norms = SelectiveSpec::Norms::kWithGains;
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    LayerSpec& layer = spec->layers[i];
    layer.attention()->rope = -1;
    if (layer.attention()->kv_heads == 0) layer.mixer = selective;
    if (!keys.HasTensor(absl::StrCat("blk.", i, ".ffn_gate_inp.weight"))) {
      layer.feed_forward.experts.reset();
    }
  }
  return absl::OkStatus();
}

absl::Status DescribePlamo2(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  spec->ropes[0].pairing = RopePairing::kHalves;
  ASSIGN_OR_RETURN(SelectiveSpec selective, ReadSelective(keys));
  RETURN_IF_ERROR(keys.IntOr("ssm.group_count", 0, 0, 0).status());
  const int64_t heads = selective.step_rank;
  if (selective.inner % heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", keys.Key("ssm.time_step_rank"), "' = ", heads, " does not divide '",
                     keys.Key("ssm.inner_size"), "' = ", selective.inner));
  }
  selective.head_dim = selective.inner / heads;
  selective.step_rank = std::max<int64_t>(64, spec->hidden / 16);
  selective.norms = SelectiveSpec::Norms::kWithGains;
  for (LayerSpec& layer : spec->layers) {
    layer.post_mixer_norm = "post_attention_norm";
    layer.post_feed_forward_norm = "post_ffw_norm";
    layer.attention()->head_norm = HeadNorm::kOwnGain;
    if (layer.attention()->kv_heads == 0) layer.mixer = selective;
  }
  return absl::OkStatus();
}

}  // namespace lm
