// "maincoder": Maincoder (Maincode 2025).
//
// As llama, with each head of q and k normed after it has turned.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeMaincoder(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  spec->ropes[0].pairing = RopePairing::kAdjacent;
  for (LayerSpec& layer : spec->layers) {
    layer.attention()->head_norm = HeadNorm::kEach;
    layer.attention()->norms_after_turning = true;
  }
  return absl::OkStatus();
}

}  // namespace lm
