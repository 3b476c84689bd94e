// "falcon-h1": Falcon-H1 (TII 2025, arXiv 2507.22448).
//
// Differs from llama: beside attention each layer has a state space of the same normed x, and both
// are added; the halves of a head turn together. (Its multipliers are in the weights.)
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeFalconH1(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  spec->ropes[0].pairing = RopePairing::kHalves;
  ASSIGN_OR_RETURN(const StateSpaceSpec space, ReadStateSpace(keys));
  for (LayerSpec& layer : spec->layers) layer.beside = space;
  return absl::OkStatus();
}

}  // namespace lm
