// "kimi-linear": Kimi Linear (Moonshot AI 2025, arXiv 2510.26692); "bailingmoe3": Ling 3 and Ring 3
// (Ant Group 2026).
//
// The layers without KV heads are Kimi delta attention, the others latent attention. Behind the
// first layers experts are chosen by a sigmoid with a bias, and some see every row. Of Kimi nothing
// turns. Of Ling neighbouring values do, the output of latent attention has a gate for each head,
// decays are bounded and made by one product, as is their gate, and feed-forwards may be limited.
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {
namespace {

absl::StatusOr<KimiDeltaSpec> ReadKimiDelta(KeyReader& keys, int64_t heads) {
  KimiDeltaSpec kimi = {.heads = heads};
  ASSIGN_OR_RETURN(kimi.head_dim, keys.Int("kda.head_dim", 1, 4096));
  ASSIGN_OR_RETURN(kimi.conv_width, keys.Int("ssm.conv_kernel", 2, 64));
  if (kimi.rule_state() <= kMaxDim) return kimi;
  return absl::InvalidArgumentError(
      absl::StrCat("a recurrent state of ", kimi.rule_state(), " values is more than ", kMaxDim));
}

// Layers with KV heads are latent attention of that kind, the others `kimi`.
absl::Status DescribeKimiLayers(KeyReader& keys, const KimiDeltaSpec& kimi, ModelSpec* spec) {
  ASSIGN_OR_RETURN(const int64_t key_dim, keys.Int("attention.key_length_mla", 2, kMaxDim));
  ASSIGN_OR_RETURN(const int64_t value_dim, keys.Int("attention.value_length_mla", 1, kMaxDim));
  ASSIGN_OR_RETURN(const AttentionSpec attention, ReadLatent(keys, *spec, key_dim, value_dim));
  for (LayerSpec& layer : spec->layers) {
    if (layer.attention()->kv_heads == 0) {
      layer.mixer = kimi;
    } else {
      layer.mixer = attention;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DescribeKimiLinear(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(keys, {.gate = RouterGate::kSigmoid, .shared = true}, spec));
  ASSIGN_OR_RETURN(KimiDeltaSpec kimi, ReadKimiDelta(keys, spec->layers[0].attention()->heads));
  kimi.low_rank = true;
  RETURN_IF_ERROR(DescribeKimiLayers(keys, kimi, spec));
  for (LayerSpec& layer : spec->layers) {
    if (layer.attention() != nullptr) layer.attention()->rope = -1;
  }
  return absl::OkStatus();
}

absl::Status DescribeBailingMoe3(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(
      keys, {.gate = RouterGate::kSigmoid, .normalised = false, .shared = true}, spec));
  RETURN_IF_ERROR(DescribeLimits(keys, spec));
  spec->ropes[0].pairing = RopePairing::kAdjacent;
  ASSIGN_OR_RETURN(KimiDeltaSpec kimi, ReadKimiDelta(keys, spec->layers[0].attention()->heads));
  ASSIGN_OR_RETURN(const bool bounded, keys.BoolOr("kda.safe_gate", true));
  ASSIGN_OR_RETURN(const double bound, keys.Float("kda.gate_lower_bound"));
  if (!bounded || !(bound < 0)) {
    return absl::UnimplementedError(
        absl::StrCat("'", keys.Key("kda.gate_lower_bound"), "' = ", bound,
                     bounded ? " must be < 0" : " is not used, and that is not supported"));
  }
  kimi.bound = static_cast<float>(bound);
  RETURN_IF_ERROR(DescribeKimiLayers(keys, kimi, spec));
  for (LayerSpec& layer : spec->layers) {
    AttentionSpec* attention = layer.attention();
    if (attention == nullptr) continue;
    attention->output_gate = OutputGate::kOwn;
    attention->gate_of_heads = true;
  }
  return absl::OkStatus();
}

}  // namespace lm
