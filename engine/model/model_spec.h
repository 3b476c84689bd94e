// ModelSpec: what a model computes, as a value. A family (families.h) fills it from the keys of a
// file; WeightLoader, CacheSpec and Transformer walk its layers and never ask for the family.
//
//   ASSIGN_OR_RETURN(ModelSpec spec, DescribeModel(*gguf));
//   for (const LayerSpec& layer : spec.layers) Reserve(MixerInputCols(layer));
//
// A layer, on the residual stream x (T, hidden), every norm an RMS norm:
//   x += post(W_o mixer(norm(x)))                       [post: a norm]     post_norms
//   x += post(W_down (act(W_gate n) * W_up n)), n = norm(x)
// The mixer is attention:
//   q, k, v = W_q n, W_k n, W_v n  [+ biases];  q, k = each head normed    [head_norms]
//   q, k    = turned by their positions                                    [rope]
//   out     = attention(q, k, v)  [* sigmoid(W_gate n)]                    [output_gate]
// or the gated delta rule (Yang et al. 2024, arXiv 2412.06464):
//   q, k, v = CausalConv(W_qkv n);  q, k = each head scaled to length 1, q / sqrt(key_dim)
//   o       = DeltaRule(q, k, v, W_alpha n, W_beta n)
//   out     = each head of o normed, * silu(W_z n)
#ifndef LM_ENGINE_MODEL_MODEL_SPEC_H_
#define LM_ENGINE_MODEL_MODEL_SPEC_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/backend/backend.h"
#include "engine/base/variant.h"
#include "engine/gguf/gguf_file.h"

namespace lm {

// YaRN (Peng et al. 2023, arXiv 2309.00071): pairs that turn more than beta_fast times within the
// original context keep their speed, those below beta_slow turns are slowed down by the scale, and
// between them both are mixed.
struct YarnSpec {
  double original_context = 0;
  double beta_fast = 32;
  double beta_slow = 1;
};

// Rotary positions: how fast a head's pairs turn, see rope.h.
struct RopeSpec {
  int64_t dim = 0;  // leading values of a head that turn; even, <= head_dim
  double base = 0;
  double scale = 1;                   // positions are divided by it
  std::optional<YarnSpec> yarn = {};  // for some of the pairs only
  double magnitude = 1;               // what cos and sin are multiplied by
  RopePairing pairing = RopePairing::kAdjacent;
};

struct AttentionSpec {
  int64_t heads = 0;     // of queries
  int64_t kv_heads = 0;  // divides heads
  int64_t head_dim = 0;  // even
  bool biases = false;   // q, k and v must have them; otherwise they may
  bool head_norms = false;
  bool output_gate = false;  // W_q has, behind each head's rows, as many of its gate
  float scale = 0;           // of q . k
  int32_t rope = 0;          // of ModelSpec::ropes; -1: positions do not turn
  int64_t window = 0;        // positions a token sees, itself included; 0: all

  int64_t q_cols() const { return heads * head_dim; }
  int64_t kv_cols() const { return kv_heads * head_dim; }
  int64_t gate_cols() const { return output_gate ? q_cols() : 0; }
};

struct DeltaNetSpec {
  int64_t heads = 0;      // of values
  int64_t key_heads = 0;  // divides heads; head h has key head h mod key_heads
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t conv_width = 0;  // tokens that the convolution sees

  int64_t key_cols() const { return key_heads * key_dim; }
  int64_t value_cols() const { return heads * value_dim; }
  int64_t conv_cols() const { return 2 * key_cols() + value_cols(); }
  // Values of recurrent state.
  int64_t conv_state() const { return (conv_width - 1) * conv_cols(); }
  int64_t rule_state() const { return heads * key_dim * value_dim; }
};

struct FeedForwardSpec {
  int64_t width = 0;
  Activation activation = Activation::kSilu;
};

struct LayerSpec {
  Variant<AttentionSpec, DeltaNetSpec> mixer;
  FeedForwardSpec feed_forward;
  const char* feed_forward_norm = "ffn_norm";  // the tensor's name
  bool post_norms = false;                     // what is added to x is normed first ("sandwich")

  const AttentionSpec* attention() const { return std::get_if<AttentionSpec>(&mixer); }
  AttentionSpec* attention() { return std::get_if<AttentionSpec>(&mixer); }
  const DeltaNetSpec* delta_net() const { return std::get_if<DeltaNetSpec>(&mixer); }
};

struct ModelSpec {
  std::string architecture;
  int64_t hidden = 0;
  int64_t vocab = 0;
  int64_t context_length = 0;
  float rms_eps = 0;
  float embedding_scale = 1;
  std::vector<RopeSpec> ropes;    // the first one has the file's factors, where there are some
  bool output_bias = false;       // the logits may have one ("output.bias")
  int64_t skipped_blocks = 0;     // of the file, behind the layers: their tensors are not read
  std::vector<LayerSpec> layers;  // at least one

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }

  // The most that `width` gives for any layer.
  template <typename Width>
  int64_t Widest(Width width) const {
    int64_t most = 0;
    for (const LayerSpec& layer : layers) most = std::max<int64_t>(most, width(layer));
    return most;
  }
};

// Columns of what a mixer's first product makes of x, and of what goes into its last.
int64_t MixerInputCols(const LayerSpec& layer);
int64_t MixerOutputCols(const LayerSpec& layer);

// Reads and checks it. Unimplemented for an architecture (or a variant of one: experts, other rope
// scaling, any key of its own that asks for more than is computed) that is not known, naming it;
// InvalidArgument, naming the key and the numbers, for a shape that cannot be.
absl::StatusOr<ModelSpec> DescribeModel(const GgufFile& gguf);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_MODEL_SPEC_H_
