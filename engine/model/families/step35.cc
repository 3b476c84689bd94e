// "step35": Step-3.5-Flash (StepFun 2026).
//
// Differs from llama: each head of q and k is normed; the output of attention has a gate for each
// head; the halves of a head turn together, of layers without a window those of half of it, by the
// file's factors. Layers with a window have heads and a rope base of their own. Feed-forwards may
// be limited; those with experts choose them by a sigmoid with a bias, and one sees every row.
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeStep35(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(
      keys, {.gate = RouterGate::kSigmoid, .normalised = false, .shared = true}, spec));
  RETURN_IF_ERROR(DescribeLimits(keys, spec));
  RETURN_IF_ERROR(keys.IntOr("moe_every_n_layers", 0, kMaxDim, 1).status());  // tensors say it
  spec->ropes[0].pairing = RopePairing::kHalves;
  RETURN_IF_ERROR(DescribeStatedWindows(keys, /*base=*/10000, spec));
  RopeSpec& full = spec->ropes[0];
  full.num_factors = std::max(full.dim, spec->ropes[1].dim) / 2;
  full.dim /= 2;
  if (full.dim % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", keys.Key("rope.dimension_count"), "' must be a multiple of 4, got ", 2 * full.dim));
  }
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    LayerSpec& layer = spec->layers[i];
    AttentionSpec& attention = *layer.attention();
    auto has = [&](const char* tensor) {
      return keys.HasTensor(absl::StrCat("blk.", i, ".", tensor, ".weight"));
    };
    if (has("attn_q_norm")) attention.head_norm = HeadNorm::kEach;
    attention.output_gate = has("attn_gate") ? OutputGate::kOwn : OutputGate::kNone;
    attention.gate_of_heads = true;
    if (!has("ffn_gate_inp")) layer.feed_forward.experts.reset();
  }
  return absl::OkStatus();
}

}  // namespace lm
