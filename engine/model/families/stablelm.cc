// "stablelm": StableLM 2 (Bellagente et al. 2024, arXiv 2402.17834).
//
// Differs from llama: LayerNorm; the halves of a part of each head turn together. The 12B model
// (its file has no norm for the feed-forward) gives attention and feed-forward the same input, and
// norms each head of q and k with gains of its own.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeStableLm(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec, NormKind::kLayer));
  spec->ropes[0].pairing = RopePairing::kHalves;
  keys.Has("use_parallel_residual");
  const bool parallel = !keys.HasTensor("blk.0.ffn_norm.weight");
  const bool head_norms = keys.HasTensor("blk.0.attn_q_norm.weight");
  for (LayerSpec& layer : spec->layers) {
    layer.parallel = parallel;
    if (parallel) layer.feed_forward_norm = layer.mixer_norm;
    if (head_norms) layer.attention()->head_norm = HeadNorm::kOwnGain;
  }
  return absl::OkStatus();
}

}  // namespace lm
