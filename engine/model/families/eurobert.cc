// "eurobert": EuroBERT (Boizard et al. 2025, arXiv 2503.05500); "llama-embed": Llama as an encoder.
//
// As llama, except that each token sees all of its text. Of EuroBERT the halves of a head turn
// together.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeEuroBert(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeLlamaEmbed(keys, spec));
  spec->ropes[0].pairing = RopePairing::kHalves;
  return absl::OkStatus();
}

absl::Status DescribeLlamaEmbed(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeLlama(keys, spec));
  spec->causal = false;
  return absl::OkStatus();
}

}  // namespace lm
