// "smollm3": SmolLM3 (Hugging Face 2025).
//
// As llama, except that in each fourth layer positions do not turn (NoPE: Kazemnejad et al. 2023,
// arXiv 2305.19466). No key says so.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeSmolLm3(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeLlama(keys, spec));
  for (int64_t i = 3; i < spec->num_layers(); i += 4) spec->layers[i].attention()->rope = -1;
  return absl::OkStatus();
}

}  // namespace lm
