// "orion": Orion (OrionStar 2024, arXiv 2401.12246).
//
// Differs from llama: the norms are layer norms, with biases; the halves of a head turn together.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeOrion(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec, NormKind::kLayer));
  spec->ropes[0].pairing = RopePairing::kHalves;
  return absl::OkStatus();
}

}  // namespace lm
