// "qwen2": Qwen2, Qwen2.5, DeepSeek-R1-Distill-Qwen (Yang et al. 2024, arXiv 2407.10671).
//
// Differs from llama: q, k and v may have biases, and the logits, too; the halves of a head turn
// together.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeQwen2(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(RefuseWindow(keys, spec->context_length));
  spec->ropes[0].pairing = RopePairing::kHalves;
  spec->output_bias = true;
  return absl::OkStatus();
}

}  // namespace lm
