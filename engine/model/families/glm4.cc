// "chatglm": ChatGLM3, GLM-4-9B and GLM-Edge (GLM Team 2024, arXiv 2406.12793); "glm4": GLM-4-0414;
// "glm4moe": GLM-4.5 and 4.6 (GLM Team 2025, arXiv 2508.06471); and the texts
// of GLM-4.1V, 4.5V and 4.6V, whose pairs are for an image's time, height and width.
//
// All may have biases of q, k and v, and turn a part of each head.
// chatglm: gate and up are one tensor; neighbouring values of a head turn together.
// glm4: what mixer and feed-forward add to x is normed too; gate and up are one tensor;
// neighbouring values of a head turn together, but the halves where the file has sections of pairs,
// for which the converter reorders the rows of W_q and W_k. glm4moe: heads of q and k may be
// normed; the norm before the feed-forward is called post_attention_norm; experts are chosen by a
// sigmoid with a bias, and one sees every row; the halves of a head turn together.
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

namespace {

// As llama.cpp, which counts sections only where the first two have some.
absl::StatusOr<bool> TurnsBySections(KeyReader& keys, ModelSpec* spec) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> sections, ReadRopeSections(keys));
  if (sections.empty() || sections[0] == 0 || sections[1] == 0) return false;
  UseRopeSections(sections, /*interleaved=*/false, &spec->ropes[0]);
  return true;
}

}  // namespace

absl::Status DescribeChatGlm(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  spec->ropes[0].pairing = RopePairing::kAdjacent;
  return absl::OkStatus();
}

absl::Status DescribeGlm4(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  ASSIGN_OR_RETURN(const bool sections, TurnsBySections(keys, spec));
  spec->ropes[0].pairing = sections ? RopePairing::kHalves : RopePairing::kAdjacent;
  for (LayerSpec& layer : spec->layers) {
    layer.post_mixer_norm = "post_attention_norm";
    layer.post_feed_forward_norm = "post_ffw_norm";
  }
  return absl::OkStatus();
}

absl::Status DescribeGlm4Moe(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(DescribeExperts(
      keys,
      {.gate = RouterGate::kSigmoid, .normalised = false, .shared = true, .share_width = true},
      spec));
  RETURN_IF_ERROR(TurnsBySections(keys, spec).status());
  spec->ropes[0].pairing = RopePairing::kHalves;
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    LayerSpec& layer = spec->layers[i];
    if (keys.HasTensor(absl::StrCat("blk.", i, ".attn_q_norm.weight"))) {
      layer.attention()->head_norm = HeadNorm::kEach;
    }
    layer.feed_forward_norm = "post_attention_norm";
  }
  return absl::OkStatus();
}

}  // namespace lm
