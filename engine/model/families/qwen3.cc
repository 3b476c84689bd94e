// "qwen3": Qwen3 dense, Qwen3-Embedding and -Reranker; "qwen3moe": Qwen3 with experts (Yang et al.
// 2025, arXiv 2505.09388).
//
// Differs from llama: each head of q and k is normed before it turns (blk.N.attn_q_norm.weight,
// attn_k_norm.weight, one gain for all heads); the halves of a head turn together; the head size is
// a key of its own (128, whatever hidden / heads is). The weights of the experts chosen are
// normalised. Of Qwen3-Reranker's two labels the first one's probability is the score.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeQwen3(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(keys, {.share_width = true}, spec));
  RETURN_IF_ERROR(RefuseWindow(keys, spec->context_length));
  spec->ropes[0].pairing = RopePairing::kHalves;
  spec->pooling.probabilities = true;
  for (LayerSpec& layer : spec->layers) layer.attention()->head_norm = HeadNorm::kEach;
  return absl::OkStatus();
}

}  // namespace lm
