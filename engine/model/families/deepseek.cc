// "deepseek": DeepSeek-MoE (Dai et al. 2024, arXiv 2401.06066); "bailingmoe": Ling (inclusionAI
// 2025, arXiv 2503.05139).
//
// As llama, and experts behind the first layers, chosen by a softmax, beside some that see every
// row.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeDeepSeek(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  spec->ropes[0].pairing = RopePairing::kAdjacent;
  return DescribeExperts(keys, {.normalised = false, .shared = true}, spec);
}

}  // namespace lm
