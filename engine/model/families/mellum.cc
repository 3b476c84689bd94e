// "mellum": Mellum 2 (JetBrains 2026).
//
// As qwen3 with experts, and three of four layers see a window; the file's rope scaling is only for
// the others. (llama.cpp reads a base for the windows, and makes no use of it.)
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeMellum(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(keys, {}, spec));
  spec->ropes[0].pairing = RopePairing::kHalves;
  keys.Has("rope.freq_base_swa");
  ASSIGN_OR_RETURN(const int64_t window, ReadWindow(keys, spec->context_length));
  ASSIGN_OR_RETURN(const int64_t declared,
                   keys.IntOr("attention.sliding_window", 0, int64_t{1} << 40, 0));
  ASSIGN_OR_RETURN(const std::vector<bool> windowed,
                   ReadWindowPattern(keys, spec->num_layers() + spec->skipped_blocks, 4));
  const RopeSpec& rope = spec->ropes[0];
  spec->ropes.push_back({.dim = rope.dim, .base = rope.base, .pairing = rope.pairing});
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    AttentionSpec& attention = *spec->layers[i].attention();
    attention.head_norm = HeadNorm::kEach;
    if (declared > 0 && windowed[i]) {
      attention.window = window;
      attention.rope = 1;
    }
  }
  return absl::OkStatus();
}

}  // namespace lm
