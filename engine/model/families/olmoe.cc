// "olmoe": OLMoE (Muennighoff et al. 2024, arXiv 2409.02060).
//
// Differs from llama: q and k are normed over all heads together; the weights of experts chosen are
// those of the softmax over all; the halves of a head turn together.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeOlmoe(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(keys, {.normalised = false}, spec));
  spec->ropes[0].pairing = RopePairing::kHalves;
  for (LayerSpec& layer : spec->layers) layer.attention()->head_norm = HeadNorm::kWhole;
  return absl::OkStatus();
}

}  // namespace lm
