// "llama": Llama 2 and 3.x, SmolLM2, TinyLlama, Mistral (Touvron et al. 2023, arXiv 2302.13971),
// and Mixtral (Jiang et al. 2024, arXiv 2401.04088).
//
// The block as model_spec.h has it; neighbouring values of a head turn together, since the
// converter reorders the rows of W_q and W_k for it. Biases are allowed and used where the file has
// them. The experts of a mixture are chosen by a softmax over all of them. Mistral 7B v0.1 and what
// was made of it see a window in each layer; llama.cpp's converter says nothing of it.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeLlama(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(keys, {}, spec));
  ASSIGN_OR_RETURN(const int64_t window, ReadWindow(keys, spec->context_length));
  for (LayerSpec& layer : spec->layers) layer.attention()->window = window;
  spec->ropes[0].pairing = RopePairing::kAdjacent;
  return absl::OkStatus();
}

}  // namespace lm
