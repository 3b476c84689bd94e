// The weights of a transformer, each on the backend that uses it.
#ifndef LM_ENGINE_MODEL_WEIGHTS_H_
#define LM_ENGINE_MODEL_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/backend/backend.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/adapter_file.h"
#include "engine/model/file_rows.h"
#include "engine/model/low_rank.h"
#include "engine/model/model_spec.h"

namespace lm {

class PackCache;

// A vector (1, n) in F32 on the backend, and its owner.
struct DeviceVector {
  Buffer buffer;
  Tensor tensor;  // empty where there is none
};

class ExpertProjection;

// One or more matrices over the same input, their outputs side by side: q, k and v, or gate and up.
// Neighbours of one type are stacked into one matrix, so that they are one product.
class Projection {
 public:
  // out (T, rows of all parts) = [x W_0^T + b_0, x W_1^T + b_1, ...], or that is added to it. Parts
  // of several types make the input each for itself.
  absl::Status Apply(Backend* backend, const ProductInput& x, ProductResult result,
                     Tensor out) const;

  // What adapters add to that: LayerRun::Apply does.
  absl::Span<const LowRankUpdate> updates() const { return updates_; }

  int64_t bytes() const;
  bool empty() const { return parts_.empty(); }

 private:
  friend class WeightLoader;
  friend class ExpertProjection;
  struct Part {
    std::unique_ptr<WeightMatrix> matrix;
    DeviceVector bias;
    int64_t first_col;  // of the output
  };
  std::vector<Part> parts_;
  std::vector<LowRankUpdate> updates_;
};

// One product of every expert of a mixture.
class ExpertProjection {
 public:
  // REQUIRES: the experts' projections have the same parts, and outlive this.
  static absl::StatusOr<ExpertProjection> Of(absl::Span<const Projection* const> experts,
                                             Backend* backend);

  // out (slots, rows of all parts) = each slot's row of x with its expert's matrices.
  absl::Status Apply(Backend* backend, const ProductInput& x, const ExpertRoutes& routes,
                     Tensor out) const;

 private:
  struct Part {
    std::unique_ptr<MatrixGroup> group;
    int64_t first_col;  // of the output
  };
  std::vector<Part> parts_;
};

// A norm, and its owner. Without a weight there is none.
struct DeviceNorm {
  DeviceVector weight, bias;
  Norm norm = {};

  bool empty() const { return norm.weight.empty(); }
};

// Of a delta net.
struct DeltaNetWeights {
  DeviceVector dt_bias, a;      // (1, heads)
  DeviceVector output_norm;     // (1, value_dim), of each head
  DeviceVector q_gain, k_gain;  // (1, key_dim): make lengths of what RmsNorm gives
};

// Of Kimi delta attention.
struct KimiDeltaWeights {
  Projection decay, gate;       // gate_input -> inner; empty: the first product makes it
  DeviceNorm a;                 // gains, of each key
  DeviceVector output_norm;     // (1, head_dim), of each head
  DeviceVector q_gain, k_gain;  // as a delta net's

  int64_t bytes() const { return decay.bytes() + gate.bytes(); }
};

// Of RWKV's time mixing, as rwkv_mixer.cc has them.
struct RwkvWeights {
  // How much of the token before each of these sees: gains.
  DeviceNorm r_shift, w_shift, k_shift, v_shift, a_shift, g_shift;
  DeviceVector previous;  // (2, inner): the convolution that takes the token before
  Projection r, k, v;
  Projection w_1, w_2, a_1, a_2, v_1, v_2, g_1, g_2;  // of low rank
  DeviceNorm erase_gain, rate_gain, bonus_gain;       // k_k, k_a and r_k
  DeviceVector unit;                                  // (1, head_dim): makes lengths
  DeviceNorm output_norm;                             // in heads; empty: none
  // RWKV-6's.
  DeviceNorm x_shift, nothing;  // the second makes zeros
  Projection mix_1, mix_2[5], g;

  int64_t bytes() const;
};

// Of a state space.
struct StateSpaceWeights {
  DeviceVector conv_bias;         // (1, conv_cols)
  DeviceVector dt_bias, a, skip;  // (1, heads)
  DeviceNorm output_norm;         // (1, inner), in groups
};

// Of a selective state space.
struct SelectiveWeights {
  Projection from_x;                      // inner -> step_rank + 2 state_dim
  Projection step;                        // step_rank -> inner
  DeviceNorm step_norm, b_norm, c_norm;   // empty: none
  DeviceVector conv_bias, no_bias, skip;  // (1, inner); the second is zeros
  DeviceVector a;                         // (1, inner * state_dim)

  int64_t bytes() const { return from_x.bytes() + step.bytes(); }
};

// Of latent attention; as LatentSpec has them.
struct LatentWeights {
  DeviceNorm q_norm, norm;
  Projection q_b;
  std::vector<Projection> k, v;  // of each head

  int64_t bytes() const;
};

// Of compressed attention; as CompressedSpec has them.
struct CompressedWeights {
  DeviceNorm q_norm, head_norm, norm, pooled_norm, index_norm;
  Projection q_b, index_q;
  DeviceVector places, index_places;  // (every, columns of what is pooled)
  std::vector<Projection> groups;

  int64_t bytes() const;
};

// hidden -> gate and up, or up alone, side by side -> hidden
struct FeedForwardWeights {
  Projection input, down;
  DeviceNorm spread, cut;  // of a gate's values, where few of them are left (FeedForwardSpec)
  DeviceNorm shift;        // how much of the token before it sees: gains; empty: none
  DeviceVector previous;   // as RwkvWeights
  Projection output_gate;  // hidden -> hidden, RWKV-6's
  DeviceNorm gate_shift;   // that of it

  int64_t bytes() const { return input.bytes() + down.bytes() + output_gate.bytes(); }
};

struct ExpertWeights {
  Projection latent_down, latent_up;  // hidden -> latent -> hidden
  Projection router;                  // hidden -> experts
  DeviceVector choice_bias;           // of each expert, or none
  std::vector<int32_t> of_tokens;     // the chosen of each token, or none
  std::vector<FeedForwardWeights> experts;
  ExpertProjection input, down;  // of all of these
  FeedForwardWeights shared;
  Projection shared_gate;  // hidden -> 1
  // Beside a feed-forward: of what the router sees, of what the experts see, of their sum, and of
  // what the feed-forward makes.
  DeviceNorm router_norm, norm, post_norm, other_post_norm;
  DeviceVector scales;  // of each expert's result, or none
};

// Of a token's embedding for a layer.
struct LayerInputWeights {
  Projection gate, projection;  // hidden -> per_layer_input -> hidden
  DeviceNorm norm;              // of what is added
};

// Of a layer between several residual streams, see streams.h.
struct StreamWeights {
  DeviceNorm router_norm;
  Projection router;            // hidden -> streams
  Projection predict, correct;  // streams -> streams * streams, -> streams
  DeviceNorm one_more;          // adds 1 to each of `streams` values
  DeviceNorm input_gain;        // of what the embedding for the layer is gated by

  int64_t bytes() const { return router.bytes() + predict.bytes() + correct.bytes(); }
};

// Of hyper-connections, see hyper_connections.h; at the end of a model only `pre` is made.
struct HyperWeights {
  DeviceNorm norm;      // of all streams side by side, without gains
  Projection numbers;   // streams * hidden -> pre, post and mixing
  DeviceNorm affine;    // of these: gains and biases
  DeviceNorm plus_eps;  // of pre

  int64_t bytes() const { return numbers.bytes(); }
};

// x's low-rank way around a mixer (LayerSpec::laurel_rank).
struct LaurelWeights {
  Projection down, up;  // hidden -> laurel_rank -> hidden
  DeviceNorm norm;

  int64_t bytes() const { return down.bytes() + up.bytes(); }
};

// What every model has.
inline constexpr char kEmbedding[] = "token_embd.weight";

// Stays in the file: its rows are looked up, and it is larger than all other tensors.
inline constexpr char kPerLayerEmbedding[] = "per_layer_token_embd.weight";

// Of the embeddings for all layers, side by side.
struct PerLayerInputWeights {
  FileRows embedding;     // (vocab, layers * per_layer_input)
  Projection projection;  // hidden -> layers * per_layer_input
  DeviceNorm norm;        // of each layer's
};

struct MixerWeights {
  Projection input;  // hidden -> MixerInputCols: q, gate, k, v; or q k v, z, beta, alpha
  DeviceNorm q_norm, k_norm, v_norm;  // of heads
  DeviceVector sinks, slopes;         // (1, heads)
  Projection gate;                    // of heads of latent attention
  DeviceVector conv;                  // (conv width, channels): of each tap, all channels
  DeltaNetWeights delta_net;
  KimiDeltaWeights kimi_delta;
  RwkvWeights rwkv;
  StateSpaceWeights state_space;
  SelectiveWeights selective;
  LatentWeights latent;
  CompressedWeights compressed;
  Projection output;  // MixerOutputCols -> hidden

  int64_t bytes() const {
    return input.bytes() + kimi_delta.bytes() + rwkv.bytes() + selective.bytes() + latent.bytes() +
           compressed.bytes() + gate.bytes() + output.bytes();
  }
};

struct LayerWeights {
  DeviceNorm mixer_norm;  // of hidden, as the others below; empty: none
  MixerWeights mixer, beside;
  DeviceNorm post_mixer_norm, mixer_sum_norm, mixer_second_sum_norm;
  DeviceNorm feed_forward_norm, post_feed_forward_norm, feed_forward_sum_norm;
  FeedForwardWeights feed_forward;
  ExpertWeights experts;
  LayerInputWeights input;
  StreamWeights streams;
  HyperWeights hyper_mixer, hyper_feed_forward;
  LaurelWeights laurel;
  float output_scale = 1;

  // That the products of one token read.
  int64_t bytes_a_token(const LayerSpec& spec) const;
};

// As PoolingSpec has them; empty where the file has none.
struct PoolingHead {
  Projection dense_2, dense_3, classifier, labels;
  DeviceNorm classifier_norm;
  int64_t num_labels = 0;
};

// Of the layer that predicts further tokens, beside what a layer has; as mtp.h has them.
struct MtpWeights {
  DeviceNorm embedding_norm, hidden_norm, output_norm;
  Projection join;                          // 2 hidden -> hidden
  std::unique_ptr<WeightMatrix> embedding;  // (vocab, hidden); null: the model's
  std::unique_ptr<WeightMatrix> output;     // likewise
  int64_t parameters = 0;                   // the layer's, too
};

struct Weights {
  std::unique_ptr<WeightMatrix> embedding;  // (vocab, hidden)
  // (learned positions, hidden), or one row for all: what is added to the embedding; empty:
  // nothing.
  DeviceVector positions;
  DeviceNorm embedding_norm;  // empty: none
  PerLayerInputWeights per_layer_input;
  // Of each residual stream but the first: hidden -> hidden, of the embedding, and at the end.
  std::vector<Projection> stream_begins, stream_ends;
  DeviceNorm stream_norm, stream_end_norm;  // without gains
  HyperWeights hyper_end;
  std::vector<LayerWeights> layers;
  MtpWeights mtp;
  DeviceNorm output_norm;
  std::unique_ptr<WeightMatrix> output;  // (vocab, hidden); null where the embedding serves
  DeviceVector output_bias;              // (1, vocab); empty: none
  PoolingHead pooling;
  bool tied = false;  // the file has one matrix for both
  // Of adapters, to the embedding and to the output where that is a matrix of its own.
  std::vector<LowRankUpdate> embedding_updates, output_updates;
  int64_t most_ranks = 0;  // of any adapter's update

  // Of each rope, per-pair divisors of its frequencies (dim / 2,); empty: all 1.
  std::vector<std::vector<float>> rope_factors;

  int64_t parameters = 0;
  int64_t bytes = 0;         // as stored in the file, without what stays there
  std::string quantisation;  // the type that holds most of the bytes

  const WeightMatrix& head() const { return output ? *output : *embedding; }
};

// Reads every tensor of the file into the backend of its layer; the embedding into the first
// layer's, the output norm and head into the last one's; and what the adapters add to each.
// InvalidArgument, naming the tensor, for one that is missing, of the wrong shape (with both
// shapes), not part of this architecture, or not finite.
// `cache` may have matrices, and gets those that it has not; null: none. With `lays_out_later`
// matrices of plain files are not read yet (see WeightLoader).
absl::StatusOr<Weights> LoadWeights(const GgufFile& gguf, absl::Span<const AdapterFile> adapters,
                                    const ModelSpec& spec,
                                    absl::FunctionRef<Backend*(int64_t layer)> backend_of,
                                    PackCache* cache = nullptr, bool lays_out_later = false);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_WEIGHTS_H_
