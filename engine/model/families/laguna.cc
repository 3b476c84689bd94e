// "laguna": Laguna (poolside 2026).
//
// Differs from llama: each head of q and k is normed; the output of attention has a gate of its
// own, for each head or each value, which is not bounded; the halves of a head turn together.
// Three of four layers may see a window, with a rope and heads of their own. Behind the first
// layers experts are chosen by a sigmoid with a bias, and one sees every row.
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeLaguna(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(
      keys, {.gate = RouterGate::kSigmoid, .normalised = false, .shared = true, .shared_count = 1},
      spec));
  spec->ropes[0].pairing = RopePairing::kHalves;
  ASSIGN_OR_RETURN(const int64_t declared,
                   keys.IntOr("attention.sliding_window", 0, int64_t{1} << 40, 0));
  ASSIGN_OR_RETURN(const int64_t window, ReadWindow(keys, spec->context_length));
  ASSIGN_OR_RETURN(const std::vector<bool> windowed,
                   ReadWindowPattern(keys, *spec, 4, /*full_first=*/true));
  RETURN_IF_ERROR(AddWindowRope(keys, /*base=*/0, spec));
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    AttentionSpec& attention = *spec->layers[i].attention();
    attention.head_norm = HeadNorm::kEach;
    attention.output_gate = OutputGate::kOwn;
    attention.gate_activation = Activation::kSoftplus;
    attention.gate_of_heads =
        keys.RowsOf(absl::StrCat("blk.", i, ".attn_gate.weight")) == attention.heads;
    if (declared == 0 || !windowed[i]) continue;
    attention.window = window;
    attention.rope = 1;
  }
  return absl::OkStatus();
}

}  // namespace lm
