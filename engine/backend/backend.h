// Backend: the dozen operations a transformer is made of, on one device.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, CreateBackend({.device = "cpu"}));
//   ASSIGN_OR_RETURN(auto w, backend->LoadMatrix(DType::kQ8_0, n, k, blocks));
//   RETURN_IF_ERROR(backend->MatMul(*w, x, /*bias=*/{}, out));
//
// Conventions
// - Activations are F32 matrices, one row a token: T tokens. Views may be column slices of wider
//   matrices (row_bytes > cols * 4), so that one product can feed several consumers.
// - Tensors passed to ops lie in the backend's memory (Allocate); Spans lie in host memory.
// - Ops run in the order they are called. On a device with a queue they may return before they have
//   finished; Synchronize or Download waits.
// - A returned error leaves the outputs undefined and the backend usable, unless the device is
// lost.
// - One thread at a time calls a backend.
//
// Numbers that are the same every time
// - No result depends on T, on where in a batch a token stands, on the number of threads, or on
//   which KV blocks hold a context. Each op says what it sums in which order; an implementation may
//   choose its own order (a device's answers are compared with the reference within tolerances),
//   but one order for all shapes.
// - Products with quantised weights are specified to the bit, see MatMul.
#ifndef LM_ENGINE_BACKEND_BACKEND_H_
#define LM_ENGINE_BACKEND_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/tensor/buffer.h"
#include "engine/tensor/tensor.h"

namespace lm {

// Tokens a KV block holds.
inline constexpr int kKvBlockTokens = 32;

// Positions that attention reduces at a time: chunk c covers the absolute positions
// [c * kAttentionChunk, (c + 1) * kAttentionChunk).
inline constexpr int kAttentionChunk = 256;

// The largest head that attention takes.
inline constexpr int kMaxHeadDim = 256;

// Values of K that share one activation scale in products with quantised weights.
inline constexpr int kActivationBlock = 32;

// Values of K that are summed at a time in products with float weights.
inline constexpr int kFloatChunk = 256;

// A weight matrix W (rows, cols) in a backend's own layout. Immutable; made by LoadMatrix.
class WeightMatrix {
 public:
  virtual ~WeightMatrix() = default;

  DType dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  // Bytes that one pass over it reads.
  virtual size_t bytes() const = 0;

 protected:
  WeightMatrix(DType dtype, int64_t rows, int64_t cols) : dtype_(dtype), rows_(rows), cols_(cols) {}

 private:
  DType dtype_;
  int64_t rows_;
  int64_t cols_;
};

// Where LoadMatrix gets a matrix from: writes the rows [first, first + count), as GGUF has them, to
// `to`. Called from several threads at once, for every row once.
using RowReader = absl::FunctionRef<absl::Status(int64_t first, int64_t count, char* to)>;

// One layer's paged keys and values, each [num_blocks][kv_heads][kKvBlockTokens][head_dim]. How a
// block's values of one KV head are arranged is the backend's own affair (the CPU keeps keys
// transposed); only its ops read them, and a block can be copied as bytes.
//
// kI8: a token's key of one head (its value alike) is x ~ s * q with one scale s and int8 codes q,
// found as for the activations of MatMul but over the whole head. The F32 scales of a block's
// tokens, of one KV head, stand behind their codes.
struct KvLayer {
  void* keys = nullptr;
  void* values = nullptr;
  DType dtype = DType::kF16;  // kF16, kF32 or kI8
  int32_t num_blocks = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;

  // Bytes of one block's keys of one KV head (its values take as many), and of all heads.
  int64_t head_bytes() const {
    const int64_t scales = dtype == DType::kI8 ? kKvBlockTokens * sizeof(float) : 0;
    return RowBytes(dtype, int64_t{kKvBlockTokens} * head_dim) + scales;
  }
  int64_t block_bytes() const { return kv_heads * head_bytes(); }
};

// The tokens of one sequence within a batch: rows [first_row, first_row + num_tokens), at the
// absolute positions [first_position, first_position + num_tokens). Position p of the sequence's
// context lies in KV block blocks[p / kKvBlockTokens], at p % kKvBlockTokens. Sequences that share
// a prefix list the same leading blocks.
struct SequenceSpan {
  int32_t first_row = 0;
  int32_t num_tokens = 0;
  int32_t first_position = 0;
  absl::Span<const int32_t> blocks;
};

// The input of a product, made row by row as the product comes to need it.
struct ProductInput {
  enum class Kind {
    kPlain,   // x
    kNormed,  // RmsNorm(x, norm, eps)
    kGated,   // SwiGlu of x's left and right half
  };

  static ProductInput Plain(Tensor x) { return {.kind = Kind::kPlain, .x = x}; }
  static ProductInput Normed(Tensor x, Tensor norm, float eps) {
    return {.kind = Kind::kNormed, .x = x, .norm = norm, .eps = eps};
  }
  static ProductInput Gated(Tensor gate_up) { return {.kind = Kind::kGated, .x = gate_up}; }

  int64_t rows() const { return x.rows; }
  int64_t cols() const { return kind == Kind::kGated ? x.cols / 2 : x.cols; }
  Kind kind = Kind::kPlain;
  Tensor x = {};
  Tensor norm = {};
  float eps = 0;
};

// What a product does with its result.
enum class ProductResult {
  kReplaces,  // out = result
  kIsAdded,   // out += result
};

// How rotary position embedding pairs a head's values: value i of a pair with its partner.
enum class RopePairing {
  kAdjacent,  // (2i, 2i + 1): the llama family
  kHalves,    // (i, i + rope_dim / 2): "NEOX"; qwen2
};

class Backend {
 public:
  virtual ~Backend() = default;

  // "reference", "cpu", "cuda:0".
  virtual absl::string_view name() const = 0;

  // --- memory -----------------------------------------------------------------------------------

  // Whether this backend's memory is the host's: then its ops take tensors anywhere in that.
  virtual bool uses_host_memory() const { return false; }
  // Zeroed memory of this device. ResourceExhausted where there is not enough.
  virtual absl::StatusOr<Buffer> Allocate(size_t bytes) = 0;
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
  // The same from host memory. REQUIRES: blocks.bytes() == rows * RowBytes(dtype, cols).
  absl::StatusOr<std::unique_ptr<WeightMatrix>> LoadMatrix(DType dtype, int64_t rows, int64_t cols,
                                                           const Buffer& blocks);

  // --- operations -------------------------------------------------------------------------------

  // out[t] = W[ids[t]] as F32.  W (vocabulary, hidden), out (T, hidden).
  // REQUIRES: 0 <= ids[t] < W.rows().
  virtual absl::Status Embed(const WeightMatrix& w, absl::Span<const int32_t> ids, Tensor out) = 0;

  // A row is groups of n values, each normed by itself (one group is the whole row; one a head is
  // "QK-norm"), over the values j of a group:
  //   out[t, g n + i] = x[t, g n + i] * weight[i] / sqrt(mean_j(x[t, g n + j]^2) + eps).
  // x, out (T, groups * n); weight (1, n). out may be x.  (Zhang and Sennrich 2019.)
  virtual absl::Status RmsNorm(Tensor x, Tensor weight, float eps, Tensor out) = 0;

  // out = x W^T + bias.  W (n, k), x (T, k), bias (1, n) or empty, out (T, n).
  //
  // Float weights (F32, F16, BF16): exact weights times x in F32, in chunks of kFloatChunk values
  // of K. A chunk's sum is acc = fma(w[n, i], x[t, i], acc) in ascending i from acc = 0; the sums
  // of the chunks are added in ascending order.
  //
  // Quantised weights: each run of 32 values of x[t] becomes int8, q = round-half-even(x * (127 /
  // max|x|)), s = max|x| / 127, all in F32. (All q = 0 and s = 0 where 127 / max|x| overflows; all
  // q = 0 and s = NaN where a value is infinite or NaN.) A weight is d * scale * q_w, plus m * min
  // for some types, with integers q_w, scale and min (quantized_block.h). For each 32 weights
  //   acc = fma(float(sum of q_w * q), (d * scale) * s, acc), the sum exact in int32;
  // where two sub-blocks of 16 share the 32 (Q2_K Q3_K Q6_K) their scales are multiplied into it:
  //   acc = fma(float(scale_0 * sum_0 + scale_1 * sum_1), d * s, acc);
  // and for types with minima (Q4_1 Q5_1 Q4_K Q5_K; Q2_K twice, for its two sub-blocks in order)
  //   acc = fma(m * min, s * float(sum of q), acc).
  // Blocks are taken in ascending order from acc = 0, for every T and on every instruction set, so
  // the portable, AVX2 and AVX-512 kernels and the reference give the same bits.
  // The bias is added last: out = acc + bias.
  virtual absl::Status MatMul(const WeightMatrix& w, Tensor x, Tensor bias, Tensor out) = 0;

  // MatMul without bias, of the columns [64 i, 64 i + 64) for each i with wanted[i] != 0: the
  // others may be left as they are. REQUIRES: wanted.size() == ceil(w.rows() / 64).
  virtual absl::Status MatMulColumns(const WeightMatrix& w, Tensor x,
                                     absl::Span<const uint64_t> wanted, Tensor out);

  // MatMul of what the input stands for, to `out` or added to it: in one pass over the activations
  // where the backend can, with the bits of the ops one after the other. Here they are that.
  virtual absl::Status Project(const WeightMatrix& w, const ProductInput& input, Tensor bias,
                               ProductResult result, Tensor out);

  // Rotates the first rope_dim = rope.cols values of each head of q (T, heads * head_dim) and
  // k (T, kv_heads * head_dim), in place, then stores k and v (T, kv_heads * head_dim) in the
  // cache: row t at block slots[t] / kKvBlockTokens, token slots[t] % kKvBlockTokens. rope (T,
  // rope_dim): cos and sin of pair i at [2i] and [2i + 1];
  //   (a, b) -> (a cos - b sin, a sin + b cos), each product and sum rounded in F32.
  virtual absl::Status RopeAndStoreKv(Tensor q, Tensor k, Tensor v, Tensor rope,
                                      RopePairing pairing, absl::Span<const int64_t> slots,
                                      const KvLayer& layer) = 0;

  // Causal attention over the paged cache with grouped queries: query head h reads KV head
  // h / (heads / kv_heads). For a token at position p, over its sequence's positions j = 0..p:
  //   out = sum_j softmax_j(scale * q . k_j) v_j.     q, out (T, heads * head_dim), F32
  // Reduced chunk by chunk (kAttentionChunk absolute positions): each chunk gives (max m, sum l of
  // exp(s - m), sum of exp(s - m) v); chunks are merged in ascending order. A chunk's three numbers
  // depend on nothing but the query and the cached values, so they are the same whoever shares
  // them. In a cache of kI8, q . k is (q . codes) * s, and exp(s - m) v is (exp(s - m) * s) codes.
  // REQUIRES: the sequences' rows are disjoint; their K and V up to p are stored.
  virtual absl::Status Attention(Tensor q, absl::Span<const SequenceSpan> sequences,
                                 const KvLayer& layer, float scale, Tensor out) = 0;

  // out[t, i] = silu(gate[t, i]) * up[t, i], silu(x) = x / (1 + exp(-x)).  All (T, n).
  virtual absl::Status SwiGlu(Tensor gate, Tensor up, Tensor out) = 0;

  // x += y.  Both (T, n).
  virtual absl::Status Add(Tensor x, Tensor y) = 0;

  // out[i] = x[rows[i]].  x (T, n), out (rows.size(), n).
  virtual absl::Status GatherRows(Tensor x, absl::Span<const int32_t> rows, Tensor out) = 0;

  // Copies the first `tokens` tokens of block `from` to block `to` (copy-on-write of a shared,
  // partly filled block), keys and values, all KV heads.
  virtual absl::Status CopyKvBlock(const KvLayer& layer, int32_t from, int32_t to,
                                   int32_t tokens) = 0;

  // Sets a block to zero, before another owner may see it.
  virtual absl::Status ZeroKvBlock(const KvLayer& layer, int32_t block) = 0;

 private:
  absl::StatusOr<Tensor> Intermediate(int64_t rows, int64_t cols, Buffer* buffer);

  Buffer input_, result_;  // of Project, between its ops
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_BACKEND_H_
