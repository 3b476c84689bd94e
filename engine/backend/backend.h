// Backend: the operations that language models are made of, on one device.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, CreateBackend({.device = "cpu"}));
//   ASSIGN_OR_RETURN(auto w, backend->LoadMatrix(DType::kQ8_0, n, k, blocks));
//   RETURN_IF_ERROR(backend->BeginStep(tables));
//   RETURN_IF_ERROR(backend->Embed(*w, /*scale=*/1, x));
//
// Conventions
// - Activations are F32 matrices, one row a token: T tokens. Views may be column slices of wider
//   matrices (row_bytes > cols * 4), so that one product can feed several consumers.
// - Tensors passed to ops lie in the backend's memory (Allocate); Spans lie in host memory.
// - What the tokens of a step are and where their contexts lie is told once, by BeginStep, for all
//   layers: the ops that say "the step's" refer to it.
// - Ops run in the order they are called. On a device with a queue they may return before they have
//   finished; Synchronize or Download waits.
// - A returned error leaves the outputs undefined and the backend usable, unless the device is
// lost.
// - One thread at a time calls a backend.
//
// Numbers that are the same every time
// - No result depends on T, on where in a batch a token stands, on the number of threads, or on
//   which KV blocks hold a context. Each backend says by its NumericContract what it sums in which
//   order: one order for all shapes.
#ifndef LM_ENGINE_BACKEND_BACKEND_H_
#define LM_ENGINE_BACKEND_BACKEND_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/backend/activation.h"
#include "engine/backend/expert_routes.h"
#include "engine/backend/numeric_contract.h"
#include "engine/backend/row_layer.h"
#include "engine/backend/sampling.h"
#include "engine/backend/step_tables.h"
#include "engine/backend/window.h"
#include "engine/tensor/buffer.h"
#include "engine/tensor/tensor.h"

namespace lm {

// Positions that attention reduces at a time: chunk c covers the absolute positions
// [c * kAttentionChunk, (c + 1) * kAttentionChunk).
inline constexpr int kAttentionChunk = 256;

// The longest key or value that attention takes.
inline constexpr int kMaxHeadDim = 576;

// The most residual streams that are balanced.
inline constexpr int kMostStreams = 16;

// A weight matrix W (rows, cols) in a backend's own layout. Made by LoadMatrix, and immutable but
// for the scales that its rows may have.
class WeightMatrix {
 public:
  virtual ~WeightMatrix() = default;

  DType dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  // Bytes that one pass over it reads.
  virtual size_t bytes() const = 0;
  // As it lies in memory, for AdoptMatrix; empty where that is not known.
  virtual absl::Span<const char> packed() const { return {}; }

  // (1, rows), or empty: products multiply their sums by it. REQUIRES: `scales` are as many F32 in
  // the backend's memory.
  Tensor row_scales() const {
    return scales_.data() == nullptr ? Tensor() : Tensor(scales_.data(), DType::kF32, 1, rows_);
  }
  virtual void set_row_scales(Buffer scales) { scales_ = std::move(scales); }

 protected:
  WeightMatrix(DType dtype, int64_t rows, int64_t cols) : dtype_(dtype), rows_(rows), cols_(cols) {}

 private:
  DType dtype_;
  int64_t rows_;
  int64_t cols_;
  Buffer scales_;
};

// Where LoadMatrix gets a matrix from: writes the rows [first, first + count), as GGUF has them, to
// `to`. Called from several threads at once, for every row once.
using RowReader = absl::FunctionRef<absl::Status(int64_t first, int64_t count, char* to)>;

// The same of rows that last: it may be called at any time, and for any row as often as one likes.
using LastingRowReader = std::function<absl::Status(int64_t first, int64_t count, char* to)>;

// Whether a cache of this type has codes, with a scale for each token and head.
constexpr bool HasScales(DType kv_type) {
  return kv_type == DType::kI8 || kv_type == DType::kI16;
}

// One layer's paged keys and values: a block of keys is [kv_heads][kKvBlockTokens][key_dim], one of
// values has value_dim instead; block b of the keys begins at keys + b * block_stride. How a
// block's values of one KV head are arranged is the backend's own affair (the CPU keeps keys
// transposed); only its ops read them, and a block can be copied as bytes.
//
// kI8, kI16: a token's key of one head (its value alike) is x ~ s * q with one scale s and codes q
// of so many bits (quantize_to_codes.h), those of kI16 up to kMostCode. The F32 scales of a block's
// tokens, of one KV head, stand behind their codes. Keys of kI8 are mixed first (mix_head.h).
struct KvLayer {
  void* keys = nullptr;
  void* values = nullptr;
  DType dtype = DType::kF16;  // kF16, kF32, kI8 or kI16
  int32_t num_blocks = 0;
  int32_t kv_heads = 0;
  int32_t key_dim = 0;
  int32_t value_dim = 0;
  int64_t block_stride = 0;  // bytes
  int32_t cache_class = 0;   // whose block tables lead to it (StepTables::blocks)

  // Bytes of one block's keys or values of one KV head, `dim` values a token.
  int64_t HeadBytes(int64_t dim) const {
    // Of kI16 in pairs, so that an odd one takes as much as the next.
    const int64_t values = dtype == DType::kI16 ? (dim + 1) / 2 * 2 : dim;
    const int64_t scales = HasScales(dtype) ? kKvBlockTokens * sizeof(float) : 0;
    return RowBytes(dtype, kKvBlockTokens * values) + scales;
  }
  // Of all heads.
  int64_t keys_bytes() const { return kv_heads * HeadBytes(key_dim); }
  int64_t values_bytes() const { return kv_heads * HeadBytes(value_dim); }
};

// Into how many shares so many KV heads are divided among devices that compute together: where they
// do not come out even each device has them all.
constexpr int32_t KvShares(int32_t kv_heads, int32_t devices) {
  return kv_heads % devices == 0 ? devices : 1;
}

// One layer's recurrent states of one kind: F32, the one in slot s at data + s * slot_stride.
struct StateLayer {
  float* data = nullptr;
  int64_t slot_stride = 0;  // values
  int32_t num_slots = 0;
};

enum class NormKind {
  kRms,    // x / sqrt(mean(x^2) + eps)                               (Zhang and Sennrich 2019)
  kLayer,  // (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps)       (Ba et al. 2016)
  kNone,   // x: weight and bias alone
};

// A norm of groups of values, times `weight`, plus `bias`.
struct Norm {
  NormKind kind = NormKind::kRms;
  Tensor weight = {};  // (1, m)
  Tensor bias = {};    // (1, m), or empty
  float eps = 0;
  int64_t group = 0;  // values of a group, divides m; 0: m

  int64_t group_size() const { return group == 0 ? weight.cols : group; }
};

// The input of a product, made row by row as the product comes to need it.
struct ProductInput {
  enum class Kind {
    kPlain,      // x
    kNormed,     // Normalize(x, norm): one group a row
    kActivated,  // Activate(x)
    kGated,      // GatedActivation of x's left and right half
  };

  static ProductInput Plain(Tensor x) { return {.kind = Kind::kPlain, .x = x}; }
  static ProductInput Normed(Tensor x, const Norm& norm) {
    return {.kind = Kind::kNormed, .x = x, .norm = norm};
  }
  static ProductInput Activated(Tensor x, Activation activation) {
    return {.kind = Kind::kActivated, .x = x, .activation = activation};
  }
  static ProductInput Gated(Tensor gate_up, Activation activation) {
    return {.kind = Kind::kGated, .x = gate_up, .activation = activation};
  }

  int64_t rows() const { return x.rows; }
  int64_t cols() const { return kind == Kind::kGated ? x.cols / 2 : x.cols; }
  Kind kind = Kind::kPlain;
  Tensor x = {};
  Norm norm = {};
  Activation activation = Activation::kSilu;
};

// What a product does with its result.
enum class ProductResult {
  kReplaces,  // out = result
  kIsAdded,   // out += result
};

// One of several products that are independent of each other: see Project.
struct MatrixProduct {
  const WeightMatrix* w;
  ProductInput input;
  Tensor bias;  // or empty
  Tensor out;
};

// A matrix of a group, and the bias of its products.
struct GroupedMatrix {
  const WeightMatrix* w;
  Tensor bias = {};  // (1, rows), or empty
};

// Matrices of one type and shape, one an expert: see ProjectExperts. Made by GroupMatrices.
class MatrixGroup {
 public:
  explicit MatrixGroup(std::vector<GroupedMatrix> members) : members_(std::move(members)) {}
  virtual ~MatrixGroup() = default;

  absl::Span<const GroupedMatrix> members() const { return members_; }

 private:
  const std::vector<GroupedMatrix> members_;
};

// A product of every expert with the rows that see it.
struct ExpertProduct {
  const MatrixGroup* group;
  ProductInput input;  // (slots, cols)
  Tensor out;          // (slots, rows)
};

// How rotary position embedding pairs a head's values: value i of a pair with its partner.
enum class RopePairing {
  kAdjacent,  // (2i, 2i + 1): the llama family
  kHalves,    // (i, i + rope_dim / 2): "NEOX"; qwen2
};

// How queries and keys turn with their positions: by one of StepTables::ropes.
struct Rope {
  int32_t table = -1;  // -1: not at all
  RopePairing pairing = RopePairing::kAdjacent;
};

struct AttentionOptions {
  float scale = 1;  // of q . k
  Window window = {};
  float softcap = 0;  // scores become softcap * tanh(score / softcap); 0: they stay
  // (1, heads): slope * |p - j| is taken from each score of the head, after the cap (ALiBi: Press
  // et al. 2021, arXiv 2108.12409); empty: none.
  Tensor slopes = {};
  Tensor sinks = {};  // (1, heads): a score of each head that has no value; empty: none
};

// What a state learns of a token.
enum class StateRule {
  kDelta,       // beta (v - S^T k): gated delta rule (Yang et al. 2024, arXiv 2412.06464)
  kStateSpace,  // step v: Mamba-2 (Dao and Gu 2024, arXiv 2405.21060), k and q being its B and C
  kErase,       // v, and loses what it had under another key: RWKV-7 (Peng et al. 2025, arXiv
                // 2503.14456)
};

// A row a token.
struct DeltaRuleInputs {
  Tensor q, k;  // (T, key_heads * key_dim)
  Tensor v;     // (T, heads * value_dim)
  // How much of the state is kept: alpha, dt_bias and a say it, or log_decay alone.
  Tensor alpha = {};      // (T, heads)
  Tensor beta = {};       // (T, heads), of kDelta; (T, heads * key_dim), of kErase
  Tensor dt_bias = {};    // (1, heads)
  Tensor a = {};          // (1, heads), or of each key (1, heads * key_dim); not positive
  Tensor log_decay = {};  // (T, heads * key_dim); not positive
  Tensor erase = {};      // (T, heads * key_dim), of kErase
  int32_t heads = 0;
  int32_t key_heads = 0;  // divides heads
  bool grouped = false;   // heads that are neighbours share a key head
  StateRule rule = StateRule::kDelta;
  Tensor skip = {};  // (1, heads): how much of v is added to what is read; empty: none

  bool decays_by_token() const { return log_decay.cols > 0; }
};

// The greatest step that there will be.
struct StepBounds {
  int64_t tokens = 0;
  int64_t context = 0;  // of a sequence, in tokens
};

class Backend {
 public:
  virtual ~Backend() = default;

  // "reference", "cpu", "cuda:0".
  virtual absl::string_view name() const = 0;

  // --- memory -----------------------------------------------------------------------------------

  // How many devices it is that share its work.
  virtual int32_t num_devices() const { return 1; }
  // Whether this backend's memory is the host's: then its ops take tensors anywhere in that.
  virtual bool uses_host_memory() const { return false; }
  virtual NumericContract numeric_contract() const = 0;
  // Zeroed memory of this device. ResourceExhausted where there is not enough.
  virtual absl::StatusOr<Buffer> Allocate(size_t bytes) = 0;
  // The same for keys and values: for KV layers and nothing else, each of a multiple of `kv_heads`
  // heads. Where a backend is several devices each may have its share of the heads: it is not to be
  // downloaded then, and what RopeAndStoreKv leaves in q and k is for Attention, and for what is
  // done to each head by itself.
  virtual absl::StatusOr<Buffer> AllocateKv(size_t bytes, int32_t /*kv_heads*/) {
    return Allocate(bytes);
  }
  // Free bytes of this device's memory (of each, where there are several); -1 where it is the
  // host's, whose system does not say.
  virtual absl::StatusOr<int64_t> FreeBytes() { return -1; }
  // From now on, until null is set: ops take what memory they need for any step within the bounds,
  // and have what is needed to run there, but compute and copy nothing. So a step later finds it.
  // Host memory is taken when it is written. REQUIRES: *bounds stays as it is meanwhile.
  virtual void set_rehearsal(const StepBounds* bounds) { rehearses_ = bounds != nullptr; }
  // Host -> device, and back. Download waits for the ops before it.
  virtual absl::Status Upload(const void* from, void* to, size_t bytes) = 0;
  virtual absl::Status Download(const void* from, void* to, size_t bytes) = 0;
  virtual absl::Status Synchronize() = 0;

  // Reads W (rows, cols) as the GGUF file has it, row-major blocks of `dtype`, and lays it out as
  // this backend's kernels like it. Errors: the reader's, of the lowest rows where there are
  // several. REQUIRES: dtype is not an integer type.
  virtual absl::StatusOr<std::unique_ptr<WeightMatrix>> LoadMatrix(DType dtype, int64_t rows,
                                                                   int64_t cols,
                                                                   RowReader read) = 0;
  // LoadMatrix from host memory. REQUIRES: blocks.bytes() == rows * RowBytes(dtype, cols).
  absl::StatusOr<std::unique_ptr<WeightMatrix>> LoadMatrix(DType dtype, int64_t rows, int64_t cols,
                                                           const Buffer& blocks);
  // LoadMatrix of rows that can be read for as long as the matrix lives. With lays_out_later()
  // nothing is read yet: products read what they multiply by until LayOutMore has laid it out.
  virtual absl::StatusOr<std::unique_ptr<WeightMatrix>> LoadLastingMatrix(DType dtype, int64_t rows,
                                                                          int64_t cols,
                                                                          LastingRowReader read) {
    return LoadMatrix(dtype, rows, cols, read);
  }
  virtual bool lays_out_later() const { return false; }
  // Lays out, between two steps and for about `time`, weights that LoadLastingMatrix has deferred.
  // Returns whether any are left. An error of reading them is one of the steps, too.
  virtual absl::StatusOr<bool> LayOutMore(absl::Duration /*time*/) { return false; }
  // Whether it takes matrices as WeightMatrix::packed() gives them, another process's too. It does
  // not write to them, and does not read them before the first step.
  virtual bool adopts_matrices() const { return false; }
  // InvalidArgument where the bytes are not as many as such a matrix has.
  virtual absl::StatusOr<std::unique_ptr<WeightMatrix>> AdoptMatrix(DType dtype, int64_t rows,
                                                                    int64_t cols, Buffer packed);
  // Makes one group of matrices of one type and shape, for ProjectExperts.
  // REQUIRES: the matrices outlive the group, and keep their scales.
  virtual absl::StatusOr<std::unique_ptr<MatrixGroup>> GroupMatrices(
      std::vector<GroupedMatrix> members);

  // --- operations -------------------------------------------------------------------------------

  // Begins a step: what the ops below refer to until the next one begins. Nothing of it is looked
  // at again per layer. InvalidArgument where the tables do not fit each other (CheckStepTables).
  // REQUIRES: *tables stays as it is meanwhile.
  absl::Status BeginStep(const StepTables* tables);

  // From now on, until null is set: once *cancel is true, what ops write is undefined, and they may
  // be quick about it. Whoever sets it looks before using anything.
  virtual void set_cancel(const std::atomic<bool>* cancel) { cancel_ = cancel; }

  // out[t] = scale * W[the step's token t] as F32.  W (vocabulary, hidden), out (T, hidden).
  virtual absl::Status Embed(const WeightMatrix& w, float scale, Tensor out) = 0;

  // A row is groups of n values, each normed by itself (one group is the whole row; one a head is
  // "QK-norm"), which gives y; then
  //   out[t, i] = y[t, i] * weight[i mod m] + bias[i mod m].
  // x, out (T, groups * n), a multiple of m. out may be x.
  virtual absl::Status Normalize(Tensor x, const Norm& norm, Tensor out) = 0;
  absl::Status RmsNorm(Tensor x, Tensor weight, float eps, Tensor out) {
    return Normalize(x, {.weight = weight, .eps = eps}, out);
  }

  // out = s * (x W^T) + bias, s being W's row_scales or 1.  W (n, k), x (T, k), bias (1, n) or
  // empty, out (T, n).
  virtual absl::Status MatMul(const WeightMatrix& w, Tensor x, Tensor bias, Tensor out) = 0;

  // MatMul without bias, of the columns [64 i, 64 i + 64) for each i with wanted[i] != 0: the
  // others may be left as they are. REQUIRES: wanted.size() == ceil(w.rows() / 64).
  virtual absl::Status MatMulColumns(const WeightMatrix& w, Tensor x,
                                     absl::Span<const uint64_t> wanted, Tensor out);

  // MatMul of what the input stands for, to `out` or added to it: in one pass over the activations
  // where the backend can, with the bits of the ops one after the other. Here they are that.
  virtual absl::Status Project(const WeightMatrix& w, const ProductInput& input, Tensor bias,
                               ProductResult result, Tensor out);

  // Project of each: the experts of a mixture, say. Shared among threads all at once where the
  // backend can, with the bits of one after the other, which it is here.
  // REQUIRES: no `out` overlaps another, or an input.
  virtual absl::Status ProjectAll(absl::Span<const MatrixProduct> products, ProductResult result);

  // Rotates the first rope_dim values of each head of q (T, heads * key_dim) and k (T, kv_heads *
  // key_dim), in place, by the step's rope table; then stores k and v (T, kv_heads * value_dim) in
  // the cache, each token at its position of the step's block tables:
  //   (a, b) -> (a cos - b sin, a sin + b cos), each product and sum rounded in F32.
  // In a cache of kI8 q and k are mixed then, in place (MixHead), q with MixedQueryScale: Attention
  // takes such queries.
  // Where k and v are empty it is about q alone: the layer's keys and values are another layer's.
  // REQUIRES: v does not overlap k, which changes.
  virtual absl::Status RopeAndStoreKv(Tensor q, Tensor k, Tensor v, const Rope& rope,
                                      const KvLayer& layer) = 0;

  // Attention of the step's sequences over the paged cache with grouped queries: query head h reads
  // KV head h / (heads / kv_heads). For a token at position p, over the positions j of its sequence
  // that it sees (window.h; what is not causal has the whole sequence in the step or before it):
  //   out = sum_j softmax_j(cap(scale * q . k_j) - slope_h |p - j|) v_j.
  //   q (T, heads * key_dim), out (T, heads * value_dim), F32
  // With sinks s the weights of head h are exp(score_j) / (exp(s_h) + sum_j exp(score_j)).
  // Reduced chunk by chunk (kAttentionChunk absolute positions): each chunk gives (max m, sum l of
  // exp(s - m), sum of exp(s - m) v); chunks are merged in ascending order, a sink last. A chunk's
  // three numbers depend on nothing but the query and the cached values, so they are the same
  // whoever shares them. In a cache of kI8, q . k is (q . codes) * s, and exp(s - m) v is (exp(s -
  // m) * s) codes.
  // In one of kI16 products are those of integers. q, too, becomes codes, up to kMostQueryCode with
  // a scale s_q: q . k is the sum over runs of kKeyRun values, each exact in int32 and made a float,
  // in ascending order, times s, and its `scale` is scale * s_q. Of each block of kKvBlockTokens
  // positions the weights exp(s - m) * s (0 where exp(s - m) is) become codes up to kMostCode with a
  // scale s_w, and the chunk's sum is fma(float(sum of codes * codes), s_w, sum), blocks in
  // ascending order.
  // REQUIRES: K and V of the positions seen are stored.
  virtual absl::Status Attention(Tensor q, const KvLayer& layer, const AttentionOptions& options,
                                 Tensor out) = 0;

  // Rotates the last values of each head of x (T, heads * head_dim), in place, by the step's rope
  // table, as RopeAndStoreKv the first ones.
  virtual absl::Status RotateTails(Tensor x, int64_t head_dim, const Rope& rope) = 0;

  // Pools the tokens of each run [r * every, (r + 1) * every) of positions, each column by itself:
  //   out[t, c] = sum_j softmax_j(scores[j, c] + places[j mod every, c]) values[j, c],
  // t being the run's last token; the rows of other tokens are zeros. Runs that overlap take the
  // run before (position 0 has none) with it: that one's tokens by column c, their own by dim + c.
  //   out (T, dim)
  // Of each such softmax the greatest score m, the sum of exp(score - m) and that of the values
  // weighted by the same are kept, token by token in order, and two of them merged as attention's
  // chunks are: a slot's state is [m, sum, weighted][dim], where runs overlap that of the run
  // before by c, of this one by c, and by dim + c.
  virtual absl::Status PoolRows(const PoolInputs& inputs, const StateLayer& layer, Tensor out) = 0;

  // Stores the rows of x (T, dim) whose tokens end a run.
  virtual absl::Status StoreRows(Tensor x, const RowLayer& layer) = 0;

  // out[t, r] = sum_h weights[t, h] * max(q[t, h] . row r, 0) for the rows r that token t sees; the
  // other columns stay.  q (T, heads * dim), weights (T, heads), out (T, at least that many)
  virtual absl::Status ScoreRows(Tensor q, Tensor weights, const RowLayer& layer, Tensor out) = 0;

  // chosen[t]: of the rows of `layer` that token t sees, the chosen.cols ones of the greatest
  // scores, the lower where two are equal, in ascending order, then -1. Where no token sees more
  // than that `scores` may be empty. They are chosen on the host: on a device it waits for the ops
  // before it; of a step that is cancelled the others are -1.
  //   scores (T, at least those seen), chosen (T, most) I32
  absl::Status ChooseRows(Tensor scores, const RowLayer& layer, Tensor chosen);

  // out = sum_j softmax_j(scale * q . row_j) row_j over the near rows that a token sees, ascending,
  // and then the far ones.
  //   q, out (T, heads * dim)
  // REQUIRES: they are stored.
  virtual absl::Status AttendRows(Tensor q, const RowAttention& attention, Tensor out) = 0;

  // Convolves each channel with the inputs before it in its sequence:
  //   out[t, c] = act(sum_j weight[j, c] * x[t - width + 1 + j, c] [+ bias[c]]), j < width,
  //   ascending from 0;
  // act is kSilu or kIdentity;
  // inputs before the step are in the sequence's state, (width - 1, C), zeros before position 0.
  // The state becomes the last width - 1 inputs.  x, out (T, C), not the same; weight (width, C),
  // bias (1, C) or empty.
  virtual absl::Status CausalConv(Tensor x, Tensor weight, Tensor bias, Activation activation,
                                  const StateLayer& layer, Tensor out) = 0;

  // For each sequence and head h, whose state S (key_dim, value_dim) is zero before position 0, for
  // the tokens in order, with q and k of key head h mod key_heads, or h / (heads / key_heads)
  // where they are grouped:
  //   step = softplus(alpha + dt_bias);  S = exp(step a) S, each row by its own a where a head has
  //   several, or exp(log_decay) S;  S = S + k d^T;
  //   out = S^T q [+ skip v],  d = sigmoid(beta) (v - S^T k), or step v.
  // kErase:  c = S^T erase, before it decays;  S = exp(log_decay) S + k v^T - (erase * beta) c^T.
  // out (T, heads * value_dim); a slot's state [heads][key_dim][value_dim]
  virtual absl::Status DeltaRule(const DeltaRuleInputs& inputs, const StateLayer& layer,
                                 Tensor out) = 0;

  // out[t, i] = activation(gate[t, i]) * up[t, i], and without the factor where `up` is empty.  All
  // (T, n); out may be one of the others.
  virtual absl::Status GatedActivation(Activation activation, Tensor gate, Tensor up,
                                       Tensor out) = 0;

  // x += scale * y, the product rounded.  Both (T, n).
  virtual absl::Status Add(Tensor x, Tensor y, float scale) = 0;

  // x = scale * x, or cap * tanh(scale * x / cap) where cap > 0.  (T, n)
  virtual absl::Status ScaleAndCap(Tensor x, float scale, float cap) = 0;

  // x = min(max(x, low), high).  (T, n)
  virtual absl::Status Clamp(Tensor x, float low, float high) = 0;

  // Multiplies the values of each group of a row: x[t, g * n + i] *= activation(factors[t, g]).
  // x (T, groups * n), factors (T, groups)
  virtual absl::Status ScaleGroups(Tensor x, Tensor factors, Activation activation) = 0;

  // out[t, g] = sum_i x[t, g * n + i] * y[t, g * n + i].  x, y (T, groups * n), out (T, groups)
  virtual absl::Status Dot(Tensor x, Tensor y, Tensor out) = 0;

  // Mixes the streams of each row, n values each, by numbers of its own, to `out` or added to it:
  //   out[t, j * n + i] = sum_s weights[t, j * streams + s] * x[t, s * n + i], s ascending.
  // x (T, streams * n), weights (T, mixed * streams), out (T, mixed * n), none of the others
  virtual absl::Status MixStreams(Tensor x, Tensor weights, int32_t streams, ProductResult result,
                                  Tensor out) = 0;

  // Makes of each row of x weights that mix streams, whose rows and columns have sums near 1
  // (Sinkhorn and Knopp 1967): of m[s][j] = exp(x[t, s * streams + j]) / sum_j of these + eps first
  // each column, then in turns each row and each column is divided by its sum + eps, columns
  // `iterations` times;  out[t, j * streams + s] = m[s][j].
  // x, out (T, streams * streams), not the same
  virtual absl::Status BalanceStreams(Tensor x, int32_t streams, int32_t iterations, float eps,
                                      Tensor out) = 0;

  // Chooses the experts of each row of logits (T, experts), see expert_routes.h. `routes` is valid
  // until it is routed anew. (Here for backends whose memory is the host's, like the next two.)
  virtual absl::Status Route(Tensor logits, const Router& router, ExpertRoutes* routes);
  // Project of each expert's slots, which follow each other, with its matrix of each group.
  // REQUIRES: no `out` overlaps another, or an input.
  virtual absl::Status ProjectExperts(absl::Span<const ExpertProduct> products,
                                      const ExpertRoutes& routes, ProductResult result);
  // out[slot] = the slot's weight, which is 1 from then on.  out (slots, 1)
  virtual absl::Status MoveWeights(ExpertRoutes* routes, Tensor out);
  // out[slot] = x[the slot's row].  x (T, n), out (slots, n)
  virtual absl::Status GatherSlots(Tensor x, const ExpertRoutes& routes, Tensor out) = 0;
  // out[t] = sum_j weight[t, j] * y[slot[t, j]], j ascending.  y (slots, n), out (T, n)
  virtual absl::Status CombineSlots(Tensor y, const ExpertRoutes& routes, Tensor out) = 0;

  // out[i] = x[rows[i]], rows = the step's row list of that number.  x (any, n), out (rows, n).
  virtual absl::Status GatherRows(Tensor x, int32_t list, Tensor out) = 0;

  // The token that SampleToken picks from each of the rows' logits, or its error: tokens[i] is that
  // of rows[i], whose `row` is one of `logits` (any, vocabulary). `*margins`, unless null: MarginOf
  // each, 0 of those with an error; of rows with a mask, biases or a penalty anything. Here it is
  // done on the host, to which a device's rows are brought. Waits for the ops before it.
  virtual absl::Status Sample(Tensor logits, absl::Span<const SamplingRow> rows,
                              std::vector<absl::StatusOr<int32_t>>* tokens,
                              std::vector<float>* margins);

  // Whether ops only enter a queue: then the next step may begin before it is known what Sample
  // picks in this one (StepTables::num_picked).
  virtual bool queues_steps() const { return false; }
  // Sample in two halves, where steps are queued: BeginSample puts the picking into the queue,
  // EndSample has what Sample has, and waits for what was in the queue until then. `(*late)[i]` is
  // set where tokens[i] is found on the host, of the logits, for which it waits for all that has
  // been asked since: a step that has begun meanwhile has another token in its place. Logits and
  // views in `rows` stay as they are until then.
  virtual absl::Status BeginSample(Tensor logits, absl::Span<const SamplingRow> rows);
  virtual absl::Status EndSample(std::vector<absl::StatusOr<int32_t>>* tokens,
                                 std::vector<float>* margins, std::vector<bool>* late);
  // Has what has been asked for begin, as far as it waits for more.
  virtual absl::Status Start() { return absl::OkStatus(); }

  // Bytes of this backend's memory: a copy to others that do not overlap, and zeros.
  virtual absl::Status Copy(const void* from, void* to, size_t bytes) = 0;
  virtual absl::Status Zero(void* data, size_t bytes) = 0;

 protected:
  // The step that has begun. REQUIRES: one has.
  const StepTables& step() const { return *index_.tables; }
  const StepIndex& step_index() const { return index_; }
  bool cancelled() const { return cancel_ != nullptr && cancel_->load(std::memory_order_relaxed); }
  // Puts it where the device finds it.
  virtual absl::Status PlaceStep() { return absl::OkStatus(); }

 private:
  absl::StatusOr<Tensor> Intermediate(int64_t rows, int64_t cols, Buffer* buffer);

  StepIndex index_;
  const std::atomic<bool>* cancel_ = nullptr;
  bool rehearses_ = false;
  Buffer input_, result_;  // of Project, between its ops
  DrawScratch draws_;      // of Sample
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_BACKEND_H_
