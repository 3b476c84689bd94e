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
  ASSIGN_OR_RETURN(spec->temperature.length, keys.IntOr("rope.scaling.original_context_length", 1,
                                                        int64_t{1} << 30, spec->context_length));
  for (LayerSpec& layer : spec->layers) layer.attention()->tempered = true;
  return absl::OkStatus();
}

}  // namespace lm
