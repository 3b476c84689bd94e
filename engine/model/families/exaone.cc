// "exaone": EXAONE 3 and 3.5 (LG AI Research 2024, arXiv 2412.04862).
//
// As llama, except that the halves of a head turn together.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeExaone(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  spec->ropes[0].pairing = RopePairing::kHalves;
  return absl::OkStatus();
}

}  // namespace lm
