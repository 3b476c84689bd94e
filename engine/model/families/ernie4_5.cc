// "ernie4_5", "ernie4_5-moe": ERNIE 4.5 (Baidu 2025).
//
// As llama. Behind leading_dense_block_count, each interleave_moe_layer_step-th layer has experts,
// whose weights are normalised, and one that sees every row.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeErnie45(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  spec->ropes[0].pairing = RopePairing::kAdjacent;
  RETURN_IF_ERROR(DescribeExperts(keys, {.shared = true}, spec));
  ASSIGN_OR_RETURN(const int64_t step, keys.IntOr("interleave_moe_layer_step", 1, kMaxDim, 1));
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    if ((i + 1) % step != 0) spec->layers[i].feed_forward.experts.reset();
  }
  return absl::OkStatus();
}

}  // namespace lm
