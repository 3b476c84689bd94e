// "exaone-moe": K-EXAONE (LG AI Research 2026).
//
// Differs from llama: each head of q and k is normed; three of four layers see a window, and only
// in these positions turn, the halves of a head together; experts are chosen by what the file says,
// with a bias, and some see every row.
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeExaoneMoe(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(keys, {.normalised = false, .shared = true}, spec));
  spec->ropes[0].pairing = RopePairing::kHalves;
  ASSIGN_OR_RETURN(const int64_t window, ReadWindow(keys, spec->context_length));
  ASSIGN_OR_RETURN(const std::vector<bool> windowed, ReadWindowPattern(keys, *spec, 4));
  IgnoreWindowBase(keys);
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    AttentionSpec& attention = *spec->layers[i].attention();
    attention.head_norm = HeadNorm::kEach;
    if (windowed[i]) attention.window = window;
    attention.rope = windowed[i] ? 0 : -1;
  }
  return absl::OkStatus();
}

}  // namespace lm
