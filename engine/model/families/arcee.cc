// "arcee": AFM (Arcee 2025).
//
// As llama, but for the feed-forward: no gate, and the square of a ReLU.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeArcee(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeLlama(keys, spec));
  for (LayerSpec& layer : spec->layers) {
    layer.feed_forward.gated = false;
    layer.feed_forward.activation = Activation::kRelu2;
  }
  return absl::OkStatus();
}

}  // namespace lm
