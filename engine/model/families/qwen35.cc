// "qwen35", "qwen35moe": Qwen3.5 and 3.6; "qwen3next": Qwen3-Next. Three of four layers are gated
// delta nets (Yang et al. 2024, arXiv 2412.06464) with a recurrent state, the fourth is attention
// with a gate on its output.
//
// Both norm x before the mixer (attn_norm) and before the feed-forward (post_attention_norm).
// Attention norms the heads of q and k and turns a part of each (partial rope); the sections that
// the file lists tell image positions apart, in a text all of them but the last, which is for
// nothing, are the token's. The weights of experts chosen are normalised, and one that sees every
// row has a gate of its own. The heads of values that share a key lie apart in the files, except
// qwen3next's, where they are neighbours.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {
namespace {

absl::StatusOr<DeltaNetSpec> ReadDeltaNet(KeyReader& keys) {
  ASSIGN_OR_RETURN(const RecurrentSizes sizes, ReadRecurrentSizes(keys));
  return DeltaNetSpec{.heads = sizes.heads,
                      .key_heads = sizes.groups,
                      .key_dim = sizes.state_dim,
                      .value_dim = sizes.head_dim,
                      .conv_width = sizes.conv_width};
}

}  // namespace

absl::Status DescribeQwen35(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(RefuseWindow(keys, spec->context_length));
  spec->ropes[0].pairing = RopePairing::kHalves;
  ASSIGN_OR_RETURN(const std::vector<int64_t> sections, ReadRopeSections(keys));
  if (!sections.empty() && keys.architecture() != "qwen3next") {
    UseRopeSections(sections, /*interleaved=*/true, &spec->ropes[0]);
  }
  RETURN_IF_ERROR(DescribeExperts(
      keys, {.shared = true, .shared_gate = true, .share_width = true, .shared_whole = true},
      spec));
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
