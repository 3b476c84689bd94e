// "seed_oss": Seed-OSS (ByteDance 2025).
//
// Differs from llama: q, k and v may have biases; the norm before the feed-forward is called
// post_attention_norm; the halves of a head turn together.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeSeedOss(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  spec->ropes[0].pairing = RopePairing::kHalves;
  for (LayerSpec& layer : spec->layers) layer.feed_forward_norm = "post_attention_norm";
  return absl::OkStatus();
}

}  // namespace lm
