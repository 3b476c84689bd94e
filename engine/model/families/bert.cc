// "bert": BERT (Devlin et al. 2019, arXiv 1810.04805) and XLM-RoBERTa; "nomic-bert": Nomic Embed
// (Nussbaum et al. 2024, arXiv 2402.01613); "nomic-bert-moe": Nomic Embed v2 (Nussbaum and
// Duderstadt 2025, arXiv 2502.07972); "jina-bert-v3": Jina Embeddings 3 (Sturua et al. 2024, arXiv
// 2409.10173); "jina-bert-v2": Jina Embeddings 2 (Günther et al. 2023, arXiv 2310.19923).
//
// Encoders. Differ from llama: LayerNorm, not of what goes into mixer and feed-forward but of x
// when either has been added, and of the embedding, where a first row of token types is added too;
// no norm of the output. BERT: positions have an embedding and do not turn; biases everywhere; GELU
// without a gate. Of the others the halves of a head turn together, and Nomic's first has SiLU with
// a gate, its second in every other layer experts, whose weights are those of the softmax over all.
// Of Jina's first nothing turns, scores fall with the distance (ALiBi), GELU has a gate, q and k
// may be normed, all heads together, and the layer's x may be added and normed a second time.
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {
namespace {

absl::Status DescribePostNorm(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec, NormKind::kLayer));
  spec->causal = false;
  spec->token_types = keys.HasTensor("token_types.weight");
  spec->embedding_norm = "token_embd_norm";
  spec->output_norm = nullptr;
  spec->ropes[0].pairing = RopePairing::kHalves;
  for (LayerSpec& layer : spec->layers) {
    layer.mixer_norm = layer.feed_forward_norm = nullptr;
    layer.mixer_sum_norm = "attn_output_norm";
    layer.feed_forward_sum_norm = "layer_output_norm";
  }
  return absl::OkStatus();
}

void UseGeluWithoutGate(ModelSpec* spec) {
  for (LayerSpec& layer : spec->layers) {
    layer.feed_forward.gated = false;
    layer.feed_forward.activation = Activation::kGeluTanh;
  }
}

}  // namespace

absl::Status DescribeBert(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribePostNorm(keys, spec));
  UseGeluWithoutGate(spec);
  spec->learned_positions = spec->context_length;
  for (LayerSpec& layer : spec->layers) layer.attention()->rope = -1;
  return absl::OkStatus();
}

absl::Status DescribeNomicBert(KeyReader& keys, ModelSpec* spec) {
  return DescribePostNorm(keys, spec);
}

absl::Status DescribeNomicBertMoe(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribePostNorm(keys, spec));
  UseGeluWithoutGate(spec);
  ModelSpec with_experts = *spec;
  RETURN_IF_ERROR(DescribeExperts(keys, {.normalised = false}, &with_experts));
  ASSIGN_OR_RETURN(const int64_t every, keys.IntOr("moe_every_n_layers", 0, kMaxDim, 0));
  for (int64_t i = 0; i < spec->num_layers() && every > 0; ++i) {
    if (i % every == 1) spec->layers[i] = with_experts.layers[i];
  }
  return absl::OkStatus();
}

absl::Status DescribeJinaBert2(KeyReader& keys, ModelSpec* spec) {
  constexpr float kMaxAlibi = 8;
  RETURN_IF_ERROR(DescribePostNorm(keys, spec));
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    LayerSpec& layer = spec->layers[i];
    AttentionSpec& attention = *layer.attention();
    auto has = [&](const char* tensor) {
      return keys.HasTensor(absl::StrCat("blk.", i, ".", tensor, ".weight"));
    };
    attention.rope = -1;
    attention.max_alibi = kMaxAlibi;
    if (has("attn_q_norm")) attention.head_norm = HeadNorm::kWhole;
    if (has("attn_norm_2")) layer.mixer_second_sum_norm = "attn_norm_2";
    layer.feed_forward.activation = Activation::kGeluTanh;
  }
  return absl::OkStatus();
}

absl::Status DescribeJinaBert3(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribePostNorm(keys, spec));
  UseGeluWithoutGate(spec);
  return absl::OkStatus();
}

}  // namespace lm
