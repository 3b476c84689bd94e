// "granite", "granitemoe", "granite_swa", "granitehybrid": Granite 3 and 4 (IBM 2024); "minicpm":
// MiniCPM (Hu et al. 2024, arXiv 2404.06395).
//
// As llama, with four factors: of the embedding, of what is added to x, of the scores of attention,
// and one that the logits are divided by. An expert may see every row. Of granite and granitehybrid
// positions turn unless the file says that no rope was used in training. Of granite_swa some layers
// see a window, the file says of each whether its positions turn, and heads have sinks. Of
// granitehybrid the layers without KV heads are state spaces. MiniCPM's factors may be missing.
#include <cmath>

#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {
namespace {

struct Factors {
  float embedding = 1, residual = 1, logit_divisor = 1;
};

// 0 is an absent one.
absl::Status ReadFactor(KeyReader& keys, const char* name, float* factor) {
  ASSIGN_OR_RETURN(const double read, keys.NotNegativeOr(name, 0));
  if (read != 0) *factor = static_cast<float>(read);
  return absl::OkStatus();
}

absl::Status ApplyFactors(KeyReader& keys, Factors factors, ModelSpec* spec) {
  float scale = spec->layers[0].attention()->scale;
  RETURN_IF_ERROR(ReadFactor(keys, "embedding_scale", &factors.embedding));
  RETURN_IF_ERROR(ReadFactor(keys, "residual_scale", &factors.residual));
  RETURN_IF_ERROR(ReadFactor(keys, "attention.scale", &scale));
  RETURN_IF_ERROR(ReadFactor(keys, "logit_scale", &factors.logit_divisor));
  spec->embedding_scale = factors.embedding;
  spec->logit_scale = 1 / factors.logit_divisor;
  for (LayerSpec& layer : spec->layers) {
    layer.residual_scale = factors.residual;
    if (layer.attention() != nullptr) layer.attention()->scale = scale;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DescribeGraniteMoe(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(keys, {.shared = true}, spec));
  spec->ropes[0].pairing = RopePairing::kAdjacent;
  return ApplyFactors(keys, {}, spec);
}

absl::Status DescribeGranite(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeGraniteMoe(keys, spec));
  ASSIGN_OR_RETURN(const bool turns, keys.BoolOr("rope.scaling.finetuned", true));
  for (LayerSpec& layer : spec->layers) {
    if (!turns) layer.attention()->rope = -1;
  }
  return absl::OkStatus();
}

absl::Status DescribeGraniteSwa(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeGraniteMoe(keys, spec));
  const int64_t blocks = spec->num_layers() + spec->skipped_blocks;
  ASSIGN_OR_RETURN(const int64_t window, ReadWindow(keys, spec->context_length));
  ASSIGN_OR_RETURN(const std::vector<bool> windowed, ReadWindowPattern(keys, *spec, 1));
  ASSIGN_OR_RETURN(const std::vector<bool> turns, keys.Bools("attention.rope_pattern", blocks));
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    AttentionSpec& attention = *spec->layers[i].attention();
    attention.sinks = true;
    if (windowed[i]) attention.window = window;
    if (!turns.empty()) attention.rope = turns[i] ? 0 : -1;
  }
  return absl::OkStatus();
}

absl::Status DescribeGraniteHybrid(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeGranite(keys, spec));
  ASSIGN_OR_RETURN(const StateSpaceSpec space, ReadStateSpace(keys));
  for (LayerSpec& layer : spec->layers) {
    if (layer.attention()->kv_heads == 0) layer.mixer = space;
  }
  return absl::OkStatus();
}

absl::Status DescribeMiniCpm(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  spec->ropes[0].pairing = RopePairing::kAdjacent;
  if (keys.HasTensor("rope_factors_long.weight")) UseLongRope(&spec->ropes[0]);
  const float layers = static_cast<float>(spec->num_layers());
  // The divisor is what converters write of a model of dim_model_base 256. llama.cpp has its
  // inverse here, and of files without the key other logits.
  return ApplyFactors(keys,
                      {.embedding = 12,
                       .residual = 1.4f / std::sqrt(layers),
                       .logit_divisor = static_cast<float>(spec->hidden) / 256},
                      spec);
}

}  // namespace lm
