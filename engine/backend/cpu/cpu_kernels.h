// The inner loops of the CPU backend, one table of them per instruction set. Everything above these
// pointers is the same on every machine; everything below is written once, in terms of sixteen
// lanes (simd_*.h), and compiled once per instruction set (kernels_*.cc).
#ifndef LM_ENGINE_BACKEND_CPU_CPU_KERNELS_H_
#define LM_ENGINE_BACKEND_CPU_CPU_KERNELS_H_

#include <cstdint>

#include "engine/backend/activation.h"
#include "engine/backend/cpu/panel_format.h"
#include "engine/backend/numeric_contract.h"
#include "engine/base/cpu_features.h"

namespace lm {

// 32 activations of one token, quantised, with what the products of a block need beside them: one
// cache line.
struct alignas(64) ActivationRecord {
  int8_t q[32];
  float s;
  // What the sums of q_w * q begin with: minus the bias of the codes times the sum of q. One for
  // the 32 (at 0), or one for each half.
  int32_t start[2];
  // s * float(sum of q), likewise.
  float weighted_sum[2];
};

// The arrangement of queries and of scores in attention: rows this many floats apart. Not a power
// of two, which would crowd few sets of the caches.
inline constexpr int kScoreStride = 576 + 16;

// The same of rows of int16 codes, in such memory.
inline constexpr int kCodeStride = 2 * kScoreStride;

// What a float product does with its accumulators.
enum class Accumulate {
  kContinue,  // the chain of fma goes on from acc
  kReplace,   // a chain from 0, stored to acc
  kAdd,       // a chain from 0, added to acc
};

// The chain acc[t][i] = fma(w[k][i], x[t][k], acc[t][i]), k ascending; i < 16 * panels.
struct FloatProduct {
  DType type;            // of w: F32 or F16; I8 if not packed; BF16 for 4 packed panels
  const void* w;         // panel p, step k at w[p * panel_stride + k * k_stride], 16 values
  int64_t k_stride;      // in values
  int64_t panel_stride;  // in values
  int panels;            // 1, 2 or 4
  const float* x;        // packed: x[k * tokens + t]; else x[t * kScoreStride + k]
  bool packed;
  int tokens;  // at least 1; tokens * panels is at most CpuKernels::float_accumulators
  int64_t k;
  // So many products of k steps, one behind the other in w and x, are made side by side; their sums
  // are added one after the other. A power of two up to CpuKernels::FloatParts; not of kContinue.
  int parts = 1;
  float* acc;  // rows acc_stride floats apart
  int64_t acc_stride;
  Accumulate accumulate;
  // What will be read next, or null: at each step of k as many bytes as w has there, this many
  // bytes farther on; if not packed, as far as w's own. Of several parts, that of the first.
  const void* prefetch = nullptr;
  int64_t prefetch_step = 0;

  // What lies `distance` bytes behind w in the same arrangement; 0: nothing.
  void PrefetchBehind(int64_t distance) {
    prefetch = distance == 0 ? nullptr : static_cast<const char*>(w) + distance;
    prefetch_step = RowBytes(type, k_stride);
  }
};

// Sums of products of 16-bit codes, two values of k at a time; i < 16 * panels.
struct Int16Product {
  // Of queries and keys: acc[t][i] = scales[i] * sum of w[k][i] x[t][k], kKeyRun values of k at a
  // time. Else, of weights and values, 32 values of k:
  // acc[t][i] = fma(sum of w[k][i] x[t][k], scales[t], acc[t][i]).
  bool scores;
  const int16_t* w;  // panel p, pair k: 16 pairs at w[2 * (16 * p + k * k_stride)]
  int64_t k_stride;  // in pairs
  int panels;        // 1, 2 or, of values, 4
  const int16_t* x;  // x[t * kCodeStride + k]
  int tokens;        // at least 1; tokens * panels is at most CpuKernels::float_accumulators
  int64_t pairs;
  const float* scales;
  float* acc;  // rows acc_stride floats apart
  int64_t acc_stride;
  // What will be read next: so far behind w, in the same arrangement; 0: nothing.
  int64_t prefetch_distance;
};

// Whether a quantised product has registers for several runs.
constexpr bool LeavesRegisters(bool half_scales, int minima, int tokens) {
  return minima < 2 && (!half_scales || tokens == 1);
}

// The products of `num_blocks` blocks of 32 as backend.h specifies them, accumulated in acc[t][i].
struct QuantizedProduct {
  const PanelFormat* format;
  int panels;  // CpuKernels::panels; 2 for up to CpuKernels::pair_tokens
  // Blocks codes_step bytes apart, each of so many panels: as bytes [8][16 rows][4
  // values]; or packed as the panel has them, for up to CpuKernels::packed_tokens. Eight-bit codes
  // are the same both ways.
  const uint8_t* codes;
  int64_t codes_step;
  bool packed;
  // What will be read next, or null: for each block of the product, prefetch_bytes of it, this many
  // bytes farther on.
  const uint8_t* prefetch;
  int prefetch_bytes;
  int64_t prefetch_step;
  // panel_scales: as the panel has them, of a format with direct_scales, from a group's first block
  // on, for up to CpuKernels::packed_tokens and with packed codes or those of eight bits; else
  // floats, [block][panel][format.unpacked_scales][16 rows].
  const void* scales;
  bool panel_scales;
  bool scales_ahead;  // of a panel: ask for the next blocks' ones
  // So many pairs of panels are multiplied side by side: 1 or, with panel_scales,
  // CpuKernels::QuantizedRuns. What follows is from one's codes and prefetch, scales (bytes) and
  // acc (floats) to the next one's.
  int runs = 1;
  int64_t codes_run = 0, scales_run = 0, acc_run = 0;
  const ActivationRecord* x;  // [block][tokens]
  int tokens;                 // 1 to the tile of the format
  int64_t num_blocks;
  float* acc;  // [tokens][panels][16], rows acc_stride floats apart
  int64_t acc_stride;
  Accumulate accumulate;
};

// DeltaRule for one head of one sequence, of `lanes` <= 16 neighbouring columns of v.
struct DeltaRulePanelOp {
  int64_t tokens;
  int64_t key_dim;
  int lanes;
  // Rows of the step: token t's at + t * stride.
  const float *q, *k, *v;
  int64_t q_stride, k_stride, v_stride;
  // Of each token: what the state is multiplied by, and the part of the difference that is learnt.
  const float *decay, *learnt;
  int64_t decay_stride;
  bool decay_of_keys;  // key_dim of the former a token: each row of the state has its own
  // Of kErase, key_dim a token; else null.
  const float *erase, *rates;
  int64_t erase_stride, rates_stride;
  bool reads;    // the difference to what the state has, else v itself
  float skip;    // of v, added to out
  float* state;  // row i at + i * state_stride
  int64_t state_stride;
  float* out;
  int64_t out_stride;
};

// How many tokens and panels of 16 output columns a float product takes at a time.
struct FloatTile {
  int tokens;
  int panels;
};

struct CpuKernels {
  // Of float products: the most tokens x panels, and how many panels are best for many tokens.
  int float_accumulators;
  int float_panels;
  // Of quantised products: the panels (1 or 2), up to how many tokens can take a pair of them all
  // the same, and the most tokens. A pair is read in one run, as memory likes it.
  int panels;
  int pair_tokens;
  int quantized_tokens;
  int half_scale_tokens;
  int packed_tokens;
  // How many places of memory few tokens' products read side by side at most. A core has more reads
  // under way of several than of one, however early it asks.
  int streams;
  int stream_tokens;  // of quantised products
  // The most tokens in all for which codes are taken as the panel has them; of formats with half
  // scales second.
  int most_packed[2];

  // The least tokens in all for which codes of signed bytes are split, more than most_packed; of
  // eight-bit codes, which are not unpacked else, second. 0: never.
  int split_tokens[2] = {0, 0};

  void (*float_product)(const FloatProduct&);
  void (*quantized_product)(const QuantizedProduct&);
  void (*int16_product)(const Int16Product&);

  // Codes of one panel as bytes, biased to be unsigned: blocks [8][16][4], out_step bytes apart.
  void (*unpack_codes)(const PanelFormat& format, const uint8_t* codes, int64_t num_blocks,
                       uint8_t* out, int64_t out_step);
  // Codes of one panel of signed bytes, split: blocks of kSplitBlockBytes, out_step bytes apart;
  // and quantized_product with such `codes`, of `panels` panels and tiles of three or four tokens.
  // Null without split_tokens.
  void (*split_codes)(const PanelFormat& format, const uint8_t* codes, int64_t num_blocks,
                      uint8_t* out, int64_t out_step) = nullptr;
  void (*split_product)(const QuantizedProduct&) = nullptr;
  // Scales of one panel as floats: [format.unpacked_scales][16] a block, out_step floats apart.
  void (*unpack_scales)(const PanelFormat& format, const uint8_t* scales, int64_t num_blocks,
                        float* out, int64_t out_step);
  // x[0, 32 * num_blocks) to records `stride` records apart.
  void (*quantize_activations)(const PanelFormat& format, const float* x, int64_t num_blocks,
                               ActivationRecord* out, int64_t stride);

  // Norms of n values, times `weight`.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* out);
  void (*layer_norm)(const float* x, const float* weight, int64_t n, float eps, float* out);
  // `up` may be null.
  void (*gated_activation)(Activation activation, const float* gate, const float* up, int64_t n,
                           float* out);
  // One token of CausalConv: rows[j] are the inputs of n channels, oldest first; weight (width, n);
  // `bias` may be null.
  void (*conv)(const float* const* rows, const float* weight, int64_t weight_stride, int width,
               int64_t n, const float* bias, bool silu, float* out);
  void (*delta_rule)(const DeltaRulePanelOp&);
  // n values of F16 or BF16, n a multiple of 16, to F32.
  void (*to_float)(DType dtype, const void* x, int64_t n, float* out);
  void (*float_to_half)(const float* x, int64_t n, uint16_t* out);
  // QuantizeToCodes (quantize_to_codes.h), of int8 up to 127.
  float (*quantize_to_int8)(const float* x, int64_t n, int8_t* q);
  float (*quantize_to_int16)(const float* x, int64_t n, int most, int16_t* q);
  // In rows kScoreStride apart, 32 weights times their scales (0 where a weight is 0, whatever the
  // scale), as codes up to kMostCode in the place of the weights.
  void (*quantize_weights)(float* weights, const float* scales, int rows, float* weight_scales);

  // s[i] = cap * tanh(scale * s[i] / cap).
  void (*softcap)(float* scores, int n, float scale, float cap);
  // Scores of a row, in place: s[i] = exp(scale * s[i] - max), max and the sum of the s[i]
  // returned.
  void (*softmax)(float* scores, int n, float scale, float* max, float* sum);
  // total = total * keep + next * add, both n values.
  void (*scale_and_add)(float* total, float keep, const float* next, float add, int64_t n);
  // x += scale * y, x *= scale.
  void (*add_scaled)(float* x, const float* y, float scale, int64_t n);
  void (*scale)(float* x, float scale, int64_t n);
  // x = min(max(x, low), high); sum of x * y.
  void (*clamp)(float* x, float low, float high, int64_t n);
  float (*dot)(const float* x, const float* y, int64_t n);
  // out = sum_j weights[j] * rows[j], j ascending.
  void (*weighted_sum)(const float* const* rows, const float* weights, int count, int64_t n,
                       float* out);
  // x *= y.
  void (*multiply)(float* x, const float* y, int64_t n);
  // out = x / divisor.
  void (*divide)(const float* x, float divisor, int64_t n, float* out);

  // The most parts of a float product of this tile, packed.
  int FloatParts(FloatTile tile) const {
    int parts = tile.panels == 4 ? streams : 1;
    while (parts > 1 && parts * tile.tokens * tile.panels > float_accumulators) parts /= 2;
    return parts;
  }
  // How many runs a quantised product can have.
  int QuantizedRuns(const PanelFormat& format, int tokens) const {
    return tokens <= stream_tokens && LeavesRegisters(format.half_scales, format.minima, tokens)
               ? streams
               : 1;
  }

  // The tile for `tokens` tokens and `panels` >= 1 panels. Few tokens take all panels they can, so
  // that weights are read in long runs.
  FloatTile ChooseFloatTile(int64_t tokens, int64_t panels) const {
    for (int p = 4; p > 1; p /= 2) {
      if (p <= panels && tokens * p <= float_accumulators) return {static_cast<int>(tokens), p};
    }
    int p = float_panels;
    while (p > panels) p /= 2;
    // One panel alone has kernels for no more tokens than are best.
    int most = float_accumulators / (p == 1 ? float_panels : p);
    return {tokens < most ? static_cast<int>(tokens) : most, p};
  }
};

// The table of one instruction set, which this machine must have.
const CpuKernels& GetCpuKernels(Isa isa);

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_CPU_KERNELS_H_
