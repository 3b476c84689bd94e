// "qwen2moe": Qwen1.5-MoE and Qwen2-57B-A14B (Yang et al. 2024, arXiv 2407.10671).
//
// As qwen2 with experts: the weights of the chosen are those of the softmax over all, and one
// expert that sees every row has a gate of its own.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeQwen2Moe(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeQwen2(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(keys,
                                  {.normalised = false,
                                   .shared = true,
                                   .shared_gate = true,
                                   .share_width = true,
                                   .shared_whole = true},
                                  spec));
  return absl::OkStatus();
}

}  // namespace lm
