// "mellum": Mellum 2 (JetBrains 2026).
//
// As qwen3 with experts, and three of four layers see a window; the file's rope scaling is only for
// the others.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeMellum(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(keys, {.share_width = true}, spec));
  spec->ropes[0].pairing = RopePairing::kHalves;
  IgnoreWindowBase(keys);
  for (LayerSpec& layer : spec->layers) layer.attention()->head_norm = HeadNorm::kEach;
  return DescribeWindows(keys, /*period=*/4, /*base=*/0, spec);
}

}  // namespace lm
