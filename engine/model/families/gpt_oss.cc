// "gpt-oss": gpt-oss-20b and -120b (OpenAI 2025, arXiv 2508.10925).
//
// Differs from llama: every product has biases, those of the experts too; every other layer sees a
// window; each head has a sink, a score without a value; the experts are chosen by their logits and
// weighed by the softmax over the chosen, with gates of their own kind; the norm before them is
// called post_attention_norm; the halves of a head turn together. (Ollama's names for all that:
// engine/gguf/ollama_names.h.)
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {

absl::Status DescribeGptOss(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  RETURN_IF_ERROR(
      DescribeExperts(keys, {.gate = RouterGate::kSoftmaxOfChosen, .normalised = false}, spec));
  spec->ropes[0].pairing = RopePairing::kHalves;
  ASSIGN_OR_RETURN(const bool alternate, keys.BoolOr("ffn_gate_up_exps.alternate", false));
  ASSIGN_OR_RETURN(const int64_t window, ReadWindow(keys, spec->context_length));
  ASSIGN_OR_RETURN(const std::vector<bool> windowed, ReadWindowPattern(keys, *spec, 2));
  ASSIGN_OR_RETURN(const int32_t rope, AddWindowBase(keys, spec));
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    LayerSpec& layer = spec->layers[i];
    layer.attention()->sinks = true;
    if (windowed[i]) {
      layer.attention()->window = window;
      layer.attention()->rope = rope;
    }
    layer.feed_forward.activation = Activation::kSwigluOai;
    layer.feed_forward.alternate = alternate;
    layer.feed_forward_norm = "post_attention_norm";
  }
  return absl::OkStatus();
}

}  // namespace lm
