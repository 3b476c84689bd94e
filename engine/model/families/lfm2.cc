// "lfm2", "lfm2moe": LFM2 (Liquid AI 2025, arXiv 2511.23404).
//
// Layers without KV heads are short convolutions with a gate on either side. The others are
// attention with normed heads, whose halves turn together. The norm of the output is called
// token_embd_norm. Experts are chosen by a sigmoid with a bias and their weights normalised.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeLfm2(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(keys, {.gate = RouterGate::kSigmoid}, spec));
  spec->ropes[0].pairing = RopePairing::kHalves;
  spec->output_norm = "token_embd_norm";
  ASSIGN_OR_RETURN(const int64_t width, keys.Int("shortconv.l_cache", 2, 64));
  for (LayerSpec& layer : spec->layers) {
    if (layer.attention()->kv_heads == 0) {
      layer.mixer = ShortConvSpec{.width = width, .channels = spec->hidden};
    } else {
      layer.attention()->head_norm = HeadNorm::kEach;
    }
  }
  return absl::OkStatus();
}

}  // namespace lm
