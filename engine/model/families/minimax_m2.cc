// "minimax-m2": MiniMax-M2 (MiniMax 2025).
//
// Differs from llama: q and k are normed over all heads together; experts are chosen by a sigmoid
// with a bias, their weights normalised; the halves of a part of each head turn together.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeMiniMaxM2(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(keys, {.gate = RouterGate::kSigmoid}, spec));
  spec->ropes[0].pairing = RopePairing::kHalves;
  for (LayerSpec& layer : spec->layers) layer.attention()->head_norm = HeadNorm::kWhole;
  return absl::OkStatus();
}

}  // namespace lm
