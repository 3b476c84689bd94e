// "qwen35", "qwen35moe": Qwen3.5 and 3.6; "qwen3next": Qwen3-Next. Three of four layers are gated
// delta nets (Yang et al. 2024, arXiv 2412.06464) with a recurrent state, the fourth is attention
// with a gate on its output.
//
// Both norm x before the mixer (attn_norm) and before the feed-forward (post_attention_norm).
// Attention norms the heads of q and k and turns a part of each (partial rope); the sections that
// the file lists tell image positions apart, in a text all of them are the token's. The weights of
// experts chosen are normalised, and one that sees every row has a gate of its own. The heads of
// values that share a key lie apart in the files, except qwen3next's, where they are neighbours.
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {
namespace {

absl::StatusOr<DeltaNetSpec> ReadDeltaNet(KeyReader& keys) {
  DeltaNetSpec net;
  ASSIGN_OR_RETURN(net.conv_width, keys.Int("ssm.conv_kernel", 2, 64));
  ASSIGN_OR_RETURN(net.key_dim, keys.Int("ssm.state_size", 1, 4096));
  ASSIGN_OR_RETURN(net.heads, keys.Int("ssm.time_step_rank", 1, kMaxDim));
  ASSIGN_OR_RETURN(net.key_heads, keys.Int("ssm.group_count", 1, kMaxDim));
  ASSIGN_OR_RETURN(const int64_t inner, keys.Int("ssm.inner_size", 1, kMaxDim));
  if (net.heads % net.key_heads != 0 || inner % net.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", keys.Key("ssm.time_step_rank"), "' = ", net.heads,
                     " must be a multiple of '", keys.Key("ssm.group_count"), "' = ", net.key_heads,
                     " and divide '", keys.Key("ssm.inner_size"), "' = ", inner));
  }
  net.value_dim = inner / net.heads;
  if (net.conv_cols() > kMaxDim || net.rule_state() > kMaxDim) {
    return absl::InvalidArgumentError(
        absl::StrCat("a recurrent state of ", net.rule_state(), " values is more than ", kMaxDim));
  }
  return net;
}

}  // namespace

absl::Status DescribeQwen35(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(RefuseWindow(keys, spec->context_length));
  spec->ropes[0].pairing = RopePairing::kHalves;
  keys.Has("rope.dimension_sections");
  RETURN_IF_ERROR(DescribeExperts(keys, {.shared = true, .shared_gate = true}, spec));
  const int64_t blocks = spec->num_layers() + spec->skipped_blocks;
  ASSIGN_OR_RETURN(const std::vector<bool> recurrent,
                   keys.Bools("attention.recurrent_layers", blocks));
  ASSIGN_OR_RETURN(const int64_t interval, keys.IntOr("full_attention_interval", 1, kMaxDim, 4));
  ASSIGN_OR_RETURN(const DeltaNetSpec net, ReadDeltaNet(keys));
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    LayerSpec& layer = spec->layers[i];
    layer.feed_forward_norm = "post_attention_norm";
    if (recurrent.empty() ? (i + 1) % interval != 0 : bool{recurrent[i]}) {
      layer.mixer = net;
      continue;
    }
    layer.attention()->head_norm = HeadNorm::kEach;
    layer.attention()->output_gate = OutputGate::kInQ;
  }
  return absl::OkStatus();
}

absl::Status DescribeQwen3Next(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeQwen35(keys, spec));
  for (LayerSpec& layer : spec->layers) {
    if (auto* net = std::get_if<DeltaNetSpec>(&layer.mixer)) net->grouped = true;
  }
  return absl::OkStatus();
}

}  // namespace lm
