// "phi3": Phi-3 and Phi-4; "phimoe": Phi-3.5-MoE (Abdin et al. 2024, arXiv 2404.14219).
//
// Differs from llama: q, k and v are one tensor, gate and up another; the halves of a part of each
// head turn together, by LongRoPE where the file has its factors. Of the window that files declare
// llama.cpp makes no use either. Phi-3.5-MoE has biases everywhere, of its norms and logits too.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribePhi3(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(keys, {}, spec));
  keys.Has("attention.sliding_window");
  spec->output_bias = true;
  spec->ropes[0].pairing = RopePairing::kHalves;
  UseLongRope(&spec->ropes[0]);
  return absl::OkStatus();
}

}  // namespace lm
