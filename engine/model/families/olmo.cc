// "olmo": OLMo (Groeneveld et al. 2024, arXiv 2402.00838).
//
// Differs from llama: LayerNorm without gains; q, k and v may be kept within bounds.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeOlmo(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec, NormKind::kLayer));
  spec->plain_norms = true;
  ASSIGN_OR_RETURN(const double clamp, keys.NotNegativeOr("attention.clamp_kqv", 0));
  for (LayerSpec& layer : spec->layers) layer.attention()->clamp = static_cast<float>(clamp);
  return absl::OkStatus();
}

}  // namespace lm
