// "llama": Llama 2 and 3.x, SmolLM2, TinyLlama, Mistral (Touvron et al. 2023, arXiv 2302.13971),
// and Mixtral (Jiang et al. 2024, arXiv 2401.04088).
//
// The block as model_spec.h has it; neighbouring values of a head turn together, since the
// converter reorders the rows of W_q and W_k for it. Biases are allowed and used where the file has
// them. The experts of a mixture are chosen by a softmax over all of them.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeLlama(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(keys, {}, spec));
  RETURN_IF_ERROR(RefuseWindow(keys, spec->context_length));
  spec->ropes[0].pairing = RopePairing::kAdjacent;
  return absl::OkStatus();
}

}  // namespace lm
