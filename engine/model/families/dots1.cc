// "dots1": dots.llm1 (rednote 2025, arXiv 2506.05767); "bailingmoe2": Ling 2 (inclusionAI 2025,
// arXiv 2510.22115).
//
// Differs from llama: each head of q and k is normed; experts are chosen by what the file says,
// with a bias, and some see every row; the halves of a head (of a part of it, in Ling) turn
// together.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeDots1(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(keys, {.normalised = false, .shared = true}, spec));
  spec->ropes[0].pairing = RopePairing::kHalves;
  for (LayerSpec& layer : spec->layers) layer.attention()->head_norm = HeadNorm::kEach;
  return absl::OkStatus();
}

}  // namespace lm
