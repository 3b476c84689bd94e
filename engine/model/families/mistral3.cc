// "mistral3": Ministral 3 and its kin.
//
// As llama, except that queries grow with their position, beyond the length that the model was
// first trained on: attention.temperature_scale times ln(floor(position / that) + 1).
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeMistral3(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeLlama(keys, spec));
  ASSIGN_OR_RETURN(spec->temperature.beta, keys.NotNegativeOr("attention.temperature_scale", 0));
  if (spec->temperature.beta == 0) return absl::OkStatus();
  spec->temperature.length = spec->ropes[0].original_context;
  for (LayerSpec& layer : spec->layers) layer.attention()->tempered = true;
  return absl::OkStatus();
}

}  // namespace lm
