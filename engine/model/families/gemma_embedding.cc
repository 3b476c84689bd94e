// "gemma-embedding": EmbeddingGemma (Schechter Vera et al. 2025, arXiv 2509.20354).
//
// As gemma3, except that each token sees all of its text, in five of six layers what is half a
// window to either side of it. Two products of the pooled state may follow.
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeGemmaEmbedding(KeyReader& keys, ModelSpec* spec) {
  ASSIGN_OR_RETURN(const int64_t window, keys.Int("attention.sliding_window", 1, int64_t{1} << 30));
  RETURN_IF_ERROR(DescribeGemma3(keys, spec));
  spec->causal = false;
  for (LayerSpec& layer : spec->layers) {
    AttentionSpec& attention = *layer.attention();
    attention.window_kind = WindowKind::kSymmetric;
    if (attention.rope == 1) attention.window = window;
  }
  if (!keys.HasTensor("dense_2.weight")) return absl::OkStatus();
  ASSIGN_OR_RETURN(spec->pooling.dense, keys.Int("dense_2_feat_out", 1, kMaxDim));
  const std::pair<const char*, int64_t> others[] = {{"dense_2_feat_in", spec->hidden},
                                                    {"dense_3_feat_in", spec->pooling.dense},
                                                    {"dense_3_feat_out", spec->hidden}};
  for (const auto& [key, wanted] : others) {
    ASSIGN_OR_RETURN(const int64_t got, keys.IntOr(key, 1, kMaxDim, wanted));
    if (got == wanted) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", keys.Key(key), "' must be ", wanted, ", got ", got));
  }
  return absl::OkStatus();
}

}  // namespace lm
