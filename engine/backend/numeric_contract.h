// What a backend promises about the numbers of its products. All promise that no result depends on
// the company: on T, on what else is in a step, on threads, or on which blocks hold a context.
#ifndef LM_ENGINE_BACKEND_NUMERIC_CONTRACT_H_
#define LM_ENGINE_BACKEND_NUMERIC_CONTRACT_H_

namespace lm {

enum class NumericContract {
  // The sums below, to the bit: the same on every instruction set, and in the reference.
  //
  // Float weights (F32, F16, BF16): exact weights times x in F32, in chunks of kFloatChunk values
  // of K. A chunk's sum is acc = fma(w[n, i], x[t, i], acc) in ascending i from acc = 0; the sums
  // of the chunks are added in ascending order.
  //
  // Quantised weights: each run of kActivationBlock values of x[t] becomes int8, q =
  // round-half-even(x * (127 / max|x|)), s = max|x| / 127, all in F32. (All q = 0 and s = 0 where
  // 127 / max|x| overflows; all q = 0 and s = NaN where a value is infinite or NaN.) A weight is d
  // * scale * q_w, plus m * min for some types, with integers q_w, scale and min
  // (quantized_block.h). For each 32 weights
  //   acc = fma(float(sum of q_w * q), (d * scale) * s, acc), the sum exact in int32;
  // where two sub-blocks of 16 share the 32 (Q2_K Q3_K Q6_K IQ1_M IQ2_XS IQ2_S NVFP4) their scales
  // are multiplied into it:
  //   acc = fma(float(scale_0 * sum_0) + float(scale_1 * sum_1), d * s, acc), both products exact
  //   (and their sum, but for NVFP4's);
  // and for types with minima (Q4_1 Q5_1 Q4_K Q5_K; Q2_K twice, for its two sub-blocks in order)
  //   acc = fma(m * min, s * float(sum of q), acc).
  // Blocks are taken in ascending order from acc = 0. A scale of
  // the row (WeightMatrix::row_scales) multiplies acc; the bias is added last: out = acc + bias.
  kExactBlocks,
  // An order of the backend's own, the same for every T; compared with the reference within
  // tolerances.
  kRowInvariant,
};

// Values of K that share one activation scale in products with quantised weights.
inline constexpr int kActivationBlock = 32;

// Values of K that are summed at a time in products with float weights.
inline constexpr int kFloatChunk = 256;

// Codes of attention in a cache of int16 (backend.h, Attention) are no greater than these: so the
// products of kKeyRun codes of a query and a key, and of a block's 32 weights and values, add up
// exactly in int32.
inline constexpr int kMostCode = 8191;
inline constexpr int kMostQueryCode = 4095;
inline constexpr int kKeyRun = 64;

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_NUMERIC_CONTRACT_H_
