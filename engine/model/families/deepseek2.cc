// "deepseek2": DeepSeek-V2, V3 and R1 (DeepSeek-AI 2024, arXiv 2405.04434 and 2412.19437), Kimi-K2,
// GLM-4.7-Flash, GigaChat 3, Kanana 2, Youtu-LLM (without experts), Mistral Large 3, whose queries
// grow with their position as those of mistral3; "mistral4": Mistral 4; "minicpm3": MiniCPM3.
//
// Differs from llama: latent attention; behind the first layers experts, in groups of which only
// some are open, and some that see every row. Neighbouring values turn together. Of minicpm3 the
// halves do, it has no experts, and the factors of minicpm.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeDeepSeek2(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  ASSIGN_OR_RETURN(const int64_t vocab, keys.IntOr("vocab_size", 0, kMaxDim, 0));
  // Not every converter says which gate GLM-4.7-Flash has.
  const int64_t layers = spec->num_layers();
  const bool is_glm = (layers == 47 || layers == 48) && vocab == 154880;
  RETURN_IF_ERROR(DescribeExperts(keys,
                                  {.gate = is_glm ? RouterGate::kSigmoid : RouterGate::kSoftmax,
                                   .normalised = false,
                                   .shared = true},
                                  spec));
  RopeSpec& rope = spec->ropes[0];
  rope.pairing = RopePairing::kAdjacent;

  // Older files have what attention would be if it were not latent.
  const AttentionSpec stated = *spec->layers[0].attention();
  ASSIGN_OR_RETURN(const int64_t key_dim,
                   keys.IntOr("attention.key_length_mla", 2, kMaxDim, stated.key_dim));
  ASSIGN_OR_RETURN(const int64_t value_dim,
                   keys.IntOr("attention.value_length_mla", 1, kMaxDim, stated.value_dim));
  ASSIGN_OR_RETURN(AttentionSpec attention, ReadLatent(keys, *spec, key_dim, value_dim));
  const bool other_values =
      keys.Has("attention.value_length") && stated.value_dim != attention.value_dim;
  if (keys.Has("attention.key_length_mla") &&
      (stated.kv_heads != 1 || other_values || stated.key_dim != attention.key_dim)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "latent attention of rank ", attention.value_dim, " with ", rope.dim, " turning values of ",
        key_dim, " has one KV head of ", attention.key_dim, " and ", attention.value_dim,
        " values, got ", stated.kv_heads, " of ", stated.key_dim, " and ", stated.value_dim));
  }
  // YaRN: what the file has as the multiplier m of the logarithm is a tenth of it. With one, cos
  // and sin do not grow (of mistral4 by less), and the scores by (1 + 0.1 m ln(scale))^2.
  ASSIGN_OR_RETURN(const double tenth, keys.NotNegativeOr("rope.scaling.yarn_log_multiplier", 0));
  const double log = rope.scale > 1 ? std::log(rope.scale) : 0;
  if (rope.yarn.has_value() && tenth != 0) {
    const double grown = keys.architecture() == "mistral4" ? 1 + tenth * log : 1 + 0.1 * log;
    rope.magnitude *= (1 + 0.1 * tenth * log) / grown;
  }
  const double growth = rope.magnitude * (1 + tenth * log);
  attention.scale = static_cast<float>(growth * growth / std::sqrt(static_cast<double>(key_dim)));
  ASSIGN_OR_RETURN(spec->temperature.beta, keys.NotNegativeOr("attention.temperature_scale", 0));
  constexpr char kLength[] = "attention.temperature_length";
  if (spec->temperature.beta == 0) {
    keys.Has(kLength);
  } else {
    ASSIGN_OR_RETURN(spec->temperature.length, keys.Int(kLength, 1, int64_t{1} << 30));
    attention.tempered = true;
  }
  for (LayerSpec& layer : spec->layers) layer.mixer = attention;
  return absl::OkStatus();
}

absl::Status DescribeMiniCpm3(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  spec->ropes[0].pairing = RopePairing::kHalves;
  if (keys.HasTensor("rope_factors_long.weight")) UseLongRope(&spec->ropes[0]);
  const AttentionSpec stated = *spec->layers[0].attention();
  // Converters leave it out where the heads share the stream's width.
  ASSIGN_OR_RETURN(const int64_t value_dim,
                   keys.IntOr("attention.value_length", 1, kMaxDim,
                              std::max<int64_t>(spec->hidden / stated.heads, 1)));
  ASSIGN_OR_RETURN(const AttentionSpec attention,
                   ReadLatent(keys, *spec, stated.key_dim, value_dim));
  spec->embedding_scale = 12;
  spec->logit_scale = 256 / static_cast<float>(spec->hidden);
  for (LayerSpec& layer : spec->layers) {
    layer.mixer = attention;
    layer.residual_scale = 1.4f / std::sqrt(static_cast<float>(spec->num_layers()));
  }
  return absl::OkStatus();
}

}  // namespace lm
