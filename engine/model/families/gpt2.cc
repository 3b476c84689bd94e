// "gpt2": GPT-2 (Radford et al. 2019).
//
// Differs from llama: positions have an embedding of their own and do not turn; LayerNorm; biases
// everywhere; q, k and v are one tensor; GELU without a gate.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeGpt2(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec, NormKind::kLayer));
  spec->learned_positions = spec->context_length;
  for (LayerSpec& layer : spec->layers) {
    layer.attention()->rope = -1;
    layer.feed_forward.gated = false;
    layer.feed_forward.activation = Activation::kGeluTanh;
  }
  return absl::OkStatus();
}

}  // namespace lm
