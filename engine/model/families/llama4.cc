// "llama4": Llama 4 Scout and Maverick, their text models (Meta 2025).
//
// Differs from llama: three of four layers see the chunk of 8192 tokens that a token is in, and
// only in these positions turn, and (in Scout) heads of q and k are normed then, without a gain; in
// the others q grows with the position. In every so-manieth layer experts take the place of the
// feed-forward, chosen by a sigmoid, which is what their input is multiplied by; one sees every
// row.
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeLlama4(KeyReader& keys, ModelSpec* spec) {
  constexpr int64_t kChunk = 8192;
  constexpr int64_t kMaverickExperts = 128;
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(keys, {.gate = RouterGate::kSigmoid, .normalised = false}, spec));
  spec->ropes[0].pairing = RopePairing::kAdjacent;
  // llama.cpp takes the chunk's size as given, unless the key is there and 0.
  RETURN_IF_ERROR(keys.IntOr("attention.sliding_window", 1, int64_t{1} << 40, kChunk).status());
  RETURN_IF_ERROR(keys.IntOr("attention.chunk_size", kChunk, kChunk, kChunk).status());
  ASSIGN_OR_RETURN(const int64_t experts_count, keys.IntOr("expert_count", 0, kMaxDim, 0));
  ASSIGN_OR_RETURN(
      const bool normed,
      keys.BoolOr("use_qk_norm", experts_count > 0 && experts_count != kMaverickExperts));
  ASSIGN_OR_RETURN(const int64_t step, keys.Int("interleave_moe_layer_step", 0, kMaxDim));
  ASSIGN_OR_RETURN(const std::vector<bool> chunked, ReadWindowPattern(keys, *spec, 4));
  const RopeSpec& rope = spec->ropes[0];
  ASSIGN_OR_RETURN(const double base, keys.PositiveOr("rope.freq_base_swa", rope.base));
  if (base != rope.base) {
    return absl::UnimplementedError(
        absl::StrCat("'", keys.Key("rope.freq_base_swa"), "' = ", base, " is not supported"));
  }
  spec->temperature = {.beta = 0.1, .length = kChunk, .offset = 1};
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    LayerSpec& layer = spec->layers[i];
    AttentionSpec& attention = *layer.attention();
    if (chunked[i] && kChunk < spec->context_length) {
      attention.window = kChunk;
      attention.window_kind = WindowKind::kChunked;
    }
    std::optional<ExpertSpec>& experts = layer.feed_forward.experts;
    if (i % 4 == 3) {
      attention.rope = -1;
      attention.tempered = true;
    } else if (normed) {
      attention.head_norm = HeadNorm::kPlain;
      attention.norms_after_turning = true;
    }
    if (!experts.has_value()) continue;
    experts->shared_width = experts->width;
    experts->weigh_input = true;
    if (step == 0 || (i + 1) % step != 0) experts.reset();
  }
  return absl::OkStatus();
}

}  // namespace lm
