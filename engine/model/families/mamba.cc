// "mamba2": Mamba-2 (Dao and Gu 2024, arXiv 2405.21060): a layer is a state space and nothing else.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeMamba2(KeyReader& keys, ModelSpec* spec) {
  LayerSpec layer;
  ASSIGN_OR_RETURN(const int64_t layers, DescribeSizes(keys, spec));
  for (const char* name : {"attention.head_count", "feed_forward_length"}) {  // 0
    RETURN_IF_ERROR(keys.IntOr(name, 0, 0, 0).status());
  }
  ASSIGN_OR_RETURN(layer.mixer, ReadStateSpace(keys));
  layer.feed_forward_norm = nullptr;
  spec->layers.assign(layers, layer);
  return absl::OkStatus();
}

}  // namespace lm
