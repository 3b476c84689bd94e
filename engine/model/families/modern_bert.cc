// "modern-bert": ModernBERT (Warner et al. 2024, arXiv 2412.13663), Granite Embedding R2.
//
// An encoder. Differs from llama: LayerNorm, of the embedding too, which is what the first layer's
// mixer sees; GELU with a gate, in one tensor with what it gates, or the activation that the file
// names; two of three layers see a window to both sides, and turn with a base of their own. The
// scores of texts are made of the mean.
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {
namespace {

absl::StatusOr<Activation> ReadActivation(KeyReader& keys) {
  constexpr char kKey[] = "hidden_activation";
  if (!keys.Has(kKey)) return Activation::kGeluTanh;
  ASSIGN_OR_RETURN(const std::string name, keys.String(kKey));
  if (name == "gelu" || name == "geglu") return Activation::kGeluTanh;
  if (name == "silu" || name == "swish" || name == "swiglu") return Activation::kSilu;
  return absl::UnimplementedError(absl::StrCat("'", keys.Key(kKey), "' = '",
                                               absl::CHexEscape(name.substr(0, 64)),
                                               "' is not supported (gelu and silu are)"));
}

}  // namespace

absl::Status DescribeModernBert(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec, NormKind::kLayer));
  spec->causal = false;
  spec->embedding_norm = "token_embd_norm";
  spec->pooling.pooling = Pooling::kMean;
  spec->pooling.gelu = true;
  ASSIGN_OR_RETURN(const Activation activation, ReadActivation(keys));
  ASSIGN_OR_RETURN(const int64_t window,
                   keys.IntOr("attention.sliding_window", 0, int64_t{1} << 30, 0));
  ASSIGN_OR_RETURN(const std::vector<bool> windowed,
                   ReadWindowPattern(keys, *spec, 3, /*full_first=*/true));
  const RopeSpec& rope = spec->ropes[0];
  spec->ropes[0].pairing = RopePairing::kHalves;
  ASSIGN_OR_RETURN(const double base, keys.PositiveOr("rope.freq_base_swa", 10000));
  spec->ropes.push_back({.dim = rope.dim, .base = base, .pairing = rope.pairing});
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    LayerSpec& layer = spec->layers[i];
    layer.feed_forward.activation = activation;
    if (window > 0 && windowed[i]) {
      layer.attention()->window = window;
      layer.attention()->window_kind = WindowKind::kSymmetric;
      layer.attention()->rope = 1;
    }
  }
  spec->layers[0].mixer_norm = nullptr;
  return absl::OkStatus();
}

}  // namespace lm
