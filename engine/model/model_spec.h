// ModelSpec: what a model computes, as a value. A family (families.h) fills it from the keys of a
// file; WeightLoader, CacheSpec and Transformer walk its layers and never ask for the family.
//
//   ASSIGN_OR_RETURN(ModelSpec spec, DescribeModel(*gguf));
//   for (const LayerSpec& layer : spec.layers) Reserve(MixerInputCols(layer));
//
// A layer, on the residual stream x (T, hidden); [.]: where there is one, named as its field
//   x += r post(W_o mixer(norm(x)))                                        [post_mixer_norm]
//   x  = norm(x)                                                           [mixer_sum_norm]
//   x += r post(feed_forward(norm(x)))                                     [post_feed_forward_norm]
//   x  = norm(x)                                                           [feed_forward_sum_norm]
// or both of the same x, before either is added                            [parallel].
// The mixer is attention:
//   q, k, v = W_q n, W_k n, W_v n  [+ biases];  q, k = normed              [head_norm]
//   q, k    = turned by their positions                                    [rope]
//   q       = q (1 + beta ln(floor((position + offset) / length) + 1))     [temperature]
//   out     = attention(q, k, v)  [* act(W_gate n)]                        [output_gate]
// or that of one key and value for all heads, near ones and pooled ones   [compressed]
// or the gated delta rule (Yang et al. 2024, arXiv 2412.06464):
//   q, k, v = CausalConv(W_qkv n);  q, k = each head scaled to length 1, q / sqrt(key_dim)
//   o       = DeltaRule(q, k, v, W_alpha n, W_beta n)
//   out     = each head of o normed, * silu(W_z n)
// or that with a decay of each key (Kimi delta attention: Moonshot AI 2025, arXiv 2510.26692):
//   g   = a softplus(f + bias), or bound * sigmoid(a (f + bias)),  f = [W_fb] W_fa n
//   out = each head of DeltaRule(q, k, v, g, W_beta n) normed, * sigmoid([W_gb] W_ga n)
// or time mixing (RWKV-7: Peng et al. 2025, arXiv 2503.14456; RWKV-6: 2024, arXiv 2404.05892), see
// rwkv_mixer.cc,
// or a state space (Mamba-2: Dao and Gu 2024, arXiv 2405.21060):
//   z, xBC, step = W_in n;  x, B, C = silu(CausalConv(xBC) + bias)
//   out = norm of each group of StateSpace(x, B, C, step) * silu(z)
// or one of each channel by itself (Mamba):
//   x, z = W_in n;  x = silu(CausalConv(x) + bias);  r, B, C = [each normed] W_x x
//   out  = StateSpace(x, B, C, W_step r) * silu(z)
// or a short convolution (LFM2, arXiv 2511.23404):
//   b, c, u = W_in n;  out = c * CausalConv(b * u)
// The feed-forward is W_down (act(W_gate n) * W_up n), or W_down act(W_up n)         [not gated],
// or a sum of such ones, the experts that a router chooses (expert_routes.h):        [experts]
//   sum_e w_e expert_e(n)  [+ shared(n)  [* sigmoid(W_shared_gate n)]]
// or both, each with norms of its own, the router's with a gain over sqrt(hidden):    [beside]
//   post_1(feed_forward(norm(x))) + post_2(sum_e w_e expert_e(pre_2(x)))
// Behind it there may be, with an embedding e_i of the token for layer i,
//   x += norm(W_proj (gelu(W_gate x) * (e_i + norm(W x_0 / sqrt(hidden))_i) / sqrt(2)))
//                                                                         [per_layer_input]
//   x  = scale x                                                          [output_scale]
// Where there are several residual streams (AltUp: Baykal et al. 2023, arXiv 2301.13310), a layer
// has a guess at one of them for its x, see streams.h; or mixer and feed-forward have mixtures of
// them for their x, see hyper_connections.h.
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
#include "engine/model/pooling.h"

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
  int64_t dim = 0;  // leading values of a head that turn; even, <= key_dim
  double base = 0;
  double scale = 1;                   // positions are divided by it
  std::optional<YarnSpec> yarn = {};  // for some of the pairs only
  double magnitude = 1;               // what cos and sin are multiplied by
  RopePairing pairing = RopePairing::kAdjacent;
  std::vector<int64_t> still = {};  // pairs that do not turn
  // Tensors that divide the pairs' speeds, where the file has them: for contexts of more than
  // original_context tokens the second, if there is one (LongRoPE: Ding et al. 2024, arXiv
  // 2402.13753).
  const char* factors = nullptr;
  const char* long_factors = nullptr;
  int64_t num_factors = 0;  // that they have, of which the first are this rope's; 0: dim / 2
  int64_t original_context = 0;
  bool back = false;   // the other way
  int64_t behind = 0;  // as the token so many positions before
};

// What norms q and k.
enum class HeadNorm {
  kNone,
  kEach,     // each head, with one gain for all
  kOwnGain,  // each head, with a gain of its own
  kPlain,    // each head, without a gain
  kWhole,    // all heads together
};

// Where W_gate is.
enum class OutputGate {
  kNone,
  kInQ,  // W_q has, behind each head's rows, as many of its gate
  kOwn,  // "attn_gate"
};

// Keys and values of all heads are made of one vector, and only that is kept (multi-head latent
// attention: DeepSeek-AI 2024, arXiv 2405.04434). W_k is absorbed into the query and W_v into the
// output, so that it is attention with one KV head, whose value is its key without the part that
// turns:
//   c   = norm(W_c n);  k = [turned(W_r n), c];  v = c
//   q_h = [turned(q'_h's last rope values), K_h (q'_h's first nope)],  q' = W_q n or W_b norm(W_a
//   n) out = V_h attention(q, k, v)_h, of each head
struct LatentSpec {
  int64_t q_rank = 0;     // of W_a; 0: q' = W_q n
  int64_t nope = 0;       // values of a head of q' that do not turn
  int64_t value_dim = 0;  // of a head of out
};

// One vector of each token is key and value of all heads, and the last values of each head turn,
// those of its output back again (DeepSeek-V4: DeepSeek-AI 2026). A token sees those of its window,
// and behind them pooled ones, each of a run of tokens:
//   q = each head of W_b norm(W_a n) normed and turned,  c = norm(W_c n) turned
//   p = norm(pooled W_v n, by the scores W_s n + their places) turned as the run's first token
//   h = attention(q, [c of the window, p]) turned back
//   out = W_o [W_g h_g of each group g of heads]
// Where an index chooses them, of the pooled ones a token sees those with the greatest
//   sum_i w_i max(q'_i . p', 0),  q' = W_i norm(W_a n) turned, w = W_w n,  p' pooled as p is.
struct CompressedSpec {
  int64_t q_rank = 0;               // of W_a
  int64_t groups = 0, o_rank = 0;   // divides heads; rows of each W_g
  int64_t every = 0;                // tokens a run; 0: nothing is pooled
  bool overlaps = false;            // each run is pooled with the one before
  int64_t index_heads = 0;          // 0: a token sees all that are pooled
  int64_t index_dim = 0, most = 0;  // of p'; how many a token sees
  int32_t back_rope = -1, pooled_rope = -1;

  int64_t parts() const { return overlaps ? 2 : 1; }
};

struct AttentionSpec {
  int64_t heads = 0;      // of queries
  int64_t kv_heads = 0;   // divides heads
  int64_t key_dim = 0;    // of a head of q and k
  int64_t value_dim = 0;  // of v
  HeadNorm head_norm = HeadNorm::kNone;
  bool norms_after_turning = false;  // q and k, by head_norm
  bool value_norm = false;           // each head of v, without a gain
  bool value_is_key = false;         // v = k, before norms and turning: there is no W_v
  OutputGate output_gate = OutputGate::kNone;
  bool gate_of_heads = false;                         // one number for each head
  Activation gate_activation = Activation::kSigmoid;  // of output_gate
  bool tempered = false;                              // by ModelSpec::temperature
  bool sinks = false;   // "attn_sinks": a score of each head that has no value
  float clamp = 0;      // q, k and v are kept within +-clamp; 0: as they are
  float out_scale = 1;  // of what attention gives
  // The slopes of heads are the powers of 2^(-max_alibi / heads) (see AttentionOptions); 0: none.
  float max_alibi = 0;
  float scale = 0;     // of q . k
  float softcap = 0;   // of scores; 0: none
  int32_t rope = 0;    // of ModelSpec::ropes; -1: positions do not turn
  int64_t window = 0;  // positions a token sees (WindowKind says which of them); 0: all
  WindowKind window_kind = WindowKind::kSliding;
  // The layer whose keys and values it reads, of the same shape and window, before it; -1: its own.
  int64_t kv_source = -1;
  std::optional<LatentSpec> latent = {};
  std::optional<CompressedSpec> compressed = {};

  int64_t q_cols() const { return heads * key_dim; }
  int64_t k_cols() const { return kv_heads * key_dim; }
  int64_t v_cols() const { return kv_heads * value_dim; }
  int64_t out_cols() const { return heads * value_dim; }
  int64_t gate_cols() const {
    if (output_gate == OutputGate::kNone) return 0;
    return gate_of_heads ? heads : out_cols();
  }
  // Of a latent one: values of a head that turn, and columns of q'.
  int64_t latent_rope() const { return key_dim - value_dim; }
  int64_t latent_q_cols() const { return heads * (latent->nope + latent_rope()); }
  // Of a compressed one: columns of what is pooled, values alone, for p and for p'.
  int64_t pooled_cols() const { return compressed->every > 0 ? compressed->parts() * key_dim : 0; }
  int64_t index_cols() const {
    return compressed->index_heads > 0 ? compressed->parts() * compressed->index_dim : 0;
  }
};

struct DeltaNetSpec {
  int64_t heads = 0;      // of values
  int64_t key_heads = 0;  // divides heads
  bool grouped = false;   // head h has key head h / (heads / key_heads), else h mod key_heads
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

struct KimiDeltaSpec {
  int64_t heads = 0;
  int64_t head_dim = 0;    // of keys and of values
  int64_t conv_width = 0;  // tokens that the convolutions see
  bool low_rank = false;   // f and the gate are made by way of head_dim values
  float bound = 0;         // of g, not positive; 0: the first form

  int64_t inner() const { return heads * head_dim; }
  int64_t conv_cols() const { return 3 * inner(); }
  int64_t gate_input() const { return low_rank ? head_dim : inner(); }
  // Values of recurrent state.
  int64_t conv_state() const { return (conv_width - 1) * conv_cols(); }
  int64_t rule_state() const { return inner() * head_dim; }
};

struct RwkvSpec {
  int64_t heads = 0;
  int64_t head_dim = 0;
  // Of what decays, rates, the share of the first layer's values and the gate (0: none) are made
  // of.
  int64_t decay_rank = 0, rate_rank = 0, value_rank = 0, gate_rank = 0;
  int64_t mix_rank = 0;  // of what each of RWKV-6's five mixtures is made of; 0: it is RWKV-7
  // RWKV-6 as gated linear attention (rwkv_mixer.cc), of keys and values of so many heads, which
  // divide the others; 0: it is not.
  int64_t linear_kv_heads = 0;
  bool first = false;   // the layer whose values the others take a share of
  bool normed = false;  // what is read, each head
  // The feed-forward mixes each token with the one before it, too.
  bool mixes_feed_forward = false;

  int64_t inner() const { return heads * head_dim; }  // hidden
  bool is_6() const { return mix_rank > 0; }
  bool is_linear() const { return linear_kv_heads > 0; }
  int64_t kv_cols() const { return is_linear() ? linear_kv_heads * head_dim : inner(); }
  int64_t widest_rank() const { return std::max({decay_rank, rate_rank, value_rank, gate_rank}); }
  // Values of recurrent state: of the mixer, of the feed-forward, and of RWKV-6 the last token's
  // decays, keys and values.
  int64_t conv_state() const {
    return inner() * (1 + (mixes_feed_forward ? 1 : 0) + (is_6() && !is_linear() ? 3 : 0));
  }
  int64_t rule_state() const { return inner() * head_dim; }
};

struct StateSpaceSpec {
  int64_t heads = 0;
  int64_t groups = 0;      // of neighbouring heads that share B and C; divides heads
  int64_t state_dim = 0;   // of B and C
  int64_t head_dim = 0;    // of x
  int64_t conv_width = 0;  // tokens that the convolution sees

  int64_t inner() const { return heads * head_dim; }
  int64_t group_cols() const { return groups * state_dim; }
  int64_t conv_cols() const { return inner() + 2 * group_cols(); }
  int64_t input_cols() const { return inner() + conv_cols() + heads; }
  // Values of recurrent state.
  int64_t conv_state() const { return (conv_width - 1) * conv_cols(); }
  int64_t rule_state() const { return inner() * state_dim; }
};

// A state space of each channel by itself, whose decays are the state's own (Mamba: Gu and Dao
// 2023, arXiv 2312.00752), or of heads with one step and one decay each (PLaMo 2: Imajo et al.
// 2025, arXiv 2509.04897), whose tensors have z before x, and B and C before r.
struct SelectiveSpec {
  enum class Norms { kNone, kPlain, kWithGains };

  int64_t inner = 0;           // channels
  int64_t head_dim = 0;        // channels of a head; 0: there are none
  int64_t state_dim = 0;       // of B and C, of a channel's state
  int64_t step_rank = 0;       // of what the steps are made of
  int64_t conv_width = 0;      // tokens that the convolution sees
  Norms norms = Norms::kNone;  // of that, B and C

  int64_t heads() const { return head_dim > 0 ? inner / head_dim : inner; }
  // Values of recurrent state.
  int64_t conv_state() const { return (conv_width - 1) * inner; }
  int64_t rule_state() const { return inner * state_dim; }
};

struct ShortConvSpec {
  int64_t width = 0;     // tokens that the convolution sees
  int64_t channels = 0;  // hidden

  int64_t conv_state() const { return (width - 1) * channels; }
};

// A layer that is a feed-forward only.
struct NoMixer {};

struct ExpertSpec {
  int64_t count = 0;
  int64_t width = 0;         // of each
  Router router;             // its spans are the weights'
  int64_t shared_width = 0;  // of the expert that sees every row; 0: none
  int64_t latent = 0;  // n is made so narrow for the others, and their sum as wide again; 0: not
  bool shared_gate = false;
  bool by_token = false;     // "ffn_gate_tid2eid" says which a token has, not what the router makes
  bool weigh_input = false;  // expert_e(w_e n) in the place of w_e expert_e(n)
};

struct FeedForwardSpec {
  int64_t width = 0;
  Activation activation = Activation::kSilu;
  bool gated = true;
  bool alternate = false;  // W_gate's and W_up's rows take turns where they are one tensor
  // min(act(gate), limit) * clamp(up, -limit, limit) of experts, and of the others; 0: no limit.
  float expert_limit = 0;
  float limit = 0;
  bool limits_before = false;  // act(min(gate, limit)) in the place of min(act(gate), limit)
  // Of the gate only what is more than so many standard deviations above its mean, and that much
  // (Gemma 3n); 0: all of it.
  float sparsity = 0;
  std::optional<ExpertSpec> experts = {};  // in its place
  bool beside = false;                     // no: beside it, see above

  // Else the layer is a mixer only.
  bool exists() const { return width > 0 || experts.has_value(); }
  bool is_dense() const { return width > 0 && (beside || !experts.has_value()); }

  // Columns that `width` makes of what a first product gives.
  int64_t InputCols(int64_t of_width) const { return gated ? 2 * of_width : of_width; }
};

// The norms are tensors of these names, null where there is none.
struct LayerSpec {
  Variant<AttentionSpec, DeltaNetSpec, KimiDeltaSpec, RwkvSpec, StateSpaceSpec, SelectiveSpec,
          ShortConvSpec, NoMixer>
      mixer;
  std::optional<StateSpaceSpec> beside = {};  // attention, of the same norm(x): both are added
  FeedForwardSpec feed_forward;
  const char* mixer_norm = "attn_norm";
  const char* feed_forward_norm = "ffn_norm";
  const char* post_mixer_norm = nullptr;
  const char* post_feed_forward_norm = nullptr;
  const char* mixer_sum_norm = nullptr;
  const char* mixer_second_sum_norm = nullptr;  // of that, with the layer's x added once more
  const char* feed_forward_sum_norm = nullptr;
  bool parallel = false;
  float residual_scale = 1;  // r
  const char* output_scale = nullptr;
  float output_factor = 1;  // that x is multiplied by at the end, too
  // x becomes (x + n + norm(W_r W_l n)) / sqrt(2) behind the mixer, n = norm(x) before it (learned
  // augmented residual: Menghani et al. 2024, arXiv 2411.07501), W_l of so many rows; 0: not.
  int64_t laurel_rank = 0;

  // The feed-forward sees the token before, too.
  bool mixes_feed_forward() const { return rwkv() != nullptr && rwkv()->mixes_feed_forward; }
  bool has_mixer() const { return !std::holds_alternative<NoMixer>(mixer); }
  const AttentionSpec* attention() const { return std::get_if<AttentionSpec>(&mixer); }
  AttentionSpec* attention() { return std::get_if<AttentionSpec>(&mixer); }
  const DeltaNetSpec* delta_net() const { return std::get_if<DeltaNetSpec>(&mixer); }
  const KimiDeltaSpec* kimi_delta() const { return std::get_if<KimiDeltaSpec>(&mixer); }
  const RwkvSpec* rwkv() const { return std::get_if<RwkvSpec>(&mixer); }
  const StateSpaceSpec* state_space() const { return std::get_if<StateSpaceSpec>(&mixer); }
  const SelectiveSpec* selective() const { return std::get_if<SelectiveSpec>(&mixer); }
  const ShortConvSpec* short_conv() const { return std::get_if<ShortConvSpec>(&mixer); }
};

struct Temperature {
  double beta = 0;
  int64_t length = 1;
  int64_t offset = 0;
};

// What becomes of a text's hidden states:
//   h         = pooled
//   embedding = h, or W_3 W_2 h                                              [dense]
//   scores    = W_out tanh(W_cls h), or W_out norm(gelu(W_cls h)), each with its biases, or W_out h
//               where the file has no W_cls, or tanh(w_cls h + b) where that is one row and there
//               is no W_out; softmax of that                                 [probabilities]
// of which the first one says how well two texts go together.
struct PoolingSpec {
  std::optional<Pooling> pooling = {};  // as the file says
  int64_t dense = 0;   // columns between "dense_3" and "dense_2"; 0: there are none
  bool ranks = false;  // it is made for the scores
  bool gelu = false;   // behind "cls", and a norm
  bool probabilities = false;
};

// See hyper_connections.h.
struct HyperSpec {
  int64_t iterations = 0;  // that balance what mixes the streams
  float eps = 0;
};

struct ModelSpec {
  std::string architecture;
  int64_t hidden = 0;
  int64_t vocab = 0;
  int64_t context_length = 0;
  NormKind norm = NormKind::kRms;  // of all norms; their biases are optional
  bool plain_norms = false;        // those of the residual stream have no gains
  float norm_eps = 0;
  float post_norm_eps = 0;  // of what mixer and feed-forward add to x; 0: norm_eps
  // Else each token sees all of its text, also what comes behind it: an encoder. It can embed
  // texts, each in one step, and write none.
  bool causal = true;
  float embedding_scale = 1;
  int64_t per_layer_input = 0;          // its width; 0: none
  int64_t streams = 1;                  // residual ones
  std::optional<HyperSpec> hyper = {};  // how they are connected; else as streams.h has them
  // "position_embd", of so many positions, is added to the embedding; 0: it is not.
  int64_t learned_positions = 0;
  bool token_types = false;              // so is the first row of "token_types"
  const char* embedding_norm = nullptr;  // of the sum; null: none
  bool plain_embedding_norm = false;     // there is one without a gain
  std::vector<RopeSpec> ropes;
  Temperature temperature;
  const char* output_norm = "output_norm";  // the tensor's name; null: there is none
  bool output_bias = false;                 // the logits may have one ("output.bias")
  float logit_scale = 1;
  float logit_softcap = 0;  // 0: none
  PoolingSpec pooling;
  int64_t skipped_blocks = 0;     // of the file, behind the layers: their tensors are not read
  std::vector<LayerSpec> layers;  // at least one, the model's own; behind them that of mtp.h
  bool has_mtp = false;           // there is that one

  // The model's own.
  int64_t num_layers() const { return all_layers() - (has_mtp ? 1 : 0); }
  int64_t all_layers() const { return static_cast<int64_t>(layers.size()); }
  // From now on the layer of mtp.h is a block that is skipped.
  void LeaveOutMtp() {
    if (!has_mtp) return;
    layers.pop_back();
    ++skipped_blocks;
    has_mtp = false;
  }
  bool has_alternating_streams() const { return streams > 1 && !hyper.has_value(); }

  // The most that `width` gives for any layer.
  template <typename Width>
  int64_t Widest(Width width) const {
    int64_t most = 0;
    for (const LayerSpec& layer : layers) most = std::max<int64_t>(most, width(layer));
    return most;
  }
};

// Values of a layer's recurrent states; zeros where it has none.
struct StateSizes {
  int64_t conv = 0;  // the convolution's last inputs
  int64_t rule = 0;  // the matrices of heads

  int64_t bytes() const { return (conv + rule) * static_cast<int64_t>(sizeof(float)); }
};
StateSizes StatesOf(const LayerSpec& layer);

// Columns of what a mixer's first product makes of x, and of what goes into its last.
int64_t MixerInputCols(const LayerSpec& layer);
int64_t MixerOutputCols(const LayerSpec& layer);

// Reads and checks it. Unimplemented for an architecture (or a variant of one: other rope scaling,
// any key of its own that asks for more than is computed) that is not known, naming it;
// InvalidArgument, naming the key and the numbers, for a shape that cannot be.
//
// `pooling` stands for the file's pooling_type. Where neither is there, an encoder whose classifier
// has one label ranks.
absl::StatusOr<ModelSpec> DescribeModel(const GgufFile& gguf,
                                        std::optional<PoolingType> pooling = std::nullopt);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_MODEL_SPEC_H_
