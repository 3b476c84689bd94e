// ModelSpec: what a model computes, as a value. A family (families.h) fills it from the keys of a
// file; WeightLoader, KvCache and Transformer walk its layers and never ask for the family.
//
//   ASSIGN_OR_RETURN(ModelSpec spec, DescribeModel(*gguf));
//   for (const LayerSpec& layer : spec.layers) Reserve(layer.attention.q_cols());
//
// A layer i, on the residual stream x (T, hidden), every norm an RMS norm:
//   q, k, v = W_q norm(x), W_k norm(x), W_v norm(x)  [+ biases]
//   q, k    = each head normed                       [head_norms]
//   q, k    = turned by their positions              (ModelSpec::rope)
//   x      += W_o attention(q, k, v)                 scale * q . k
//   x      += W_down (silu(W_gate norm(x)) * W_up norm(x))
#ifndef LM_ENGINE_MODEL_MODEL_SPEC_H_
#define LM_ENGINE_MODEL_MODEL_SPEC_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/backend/backend.h"
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
  float scale = 0;

  int64_t q_cols() const { return heads * head_dim; }
  int64_t kv_cols() const { return kv_heads * head_dim; }
  int64_t qkv_cols() const { return q_cols() + 2 * kv_cols(); }
};

struct FeedForwardSpec {
  int64_t width = 0;
};

struct LayerSpec {
  AttentionSpec attention;
  FeedForwardSpec feed_forward;
};

struct ModelSpec {
  std::string architecture;
  int64_t hidden = 0;
  int64_t vocab = 0;
  int64_t context_length = 0;
  float rms_eps = 0;
  RopeSpec rope;
  bool output_bias = false;       // the logits may have one ("output.bias")
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

// Reads and checks it. Unimplemented for an architecture (or a variant of one: experts, other rope
// scaling, any key of its own that asks for more than is computed) that is not known, naming it;
// InvalidArgument, naming the key and the numbers, for a shape that cannot be.
absl::StatusOr<ModelSpec> DescribeModel(const GgufFile& gguf);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_MODEL_SPEC_H_
