// out[t, n] = sum_k W[n, k] x[t, k] + bias[n], exactly as backend.h specifies it.
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/backend/check_arguments.h"
#include "engine/backend/quantize_to_codes.h"
#include "engine/backend/quantized_block.h"
#include "engine/backend/reference/fused.h"
#include "engine/backend/reference/reference_backend.h"
#include "engine/base/float16.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/block_format.h"

namespace lm {
namespace {

constexpr int kHalf = kActivationBlock / 2;

struct ActivationBlock {
  int8_t q[kActivationBlock];
  float s;
};

// acc + the product of 32 weights and 32 activations.
float MultiplyBlock(const QuantizedTraits& traits, const QuantizedBlock& w,
                    const ActivationBlock& x, float acc) {
  int sum[2] = {0, 0};    // of q_w * q, for each half
  int sum_q[2] = {0, 0};  // of q
  for (int i = 0; i < kActivationBlock; ++i) {
    int q_w = traits.table != nullptr ? traits.table[w.codes[i]] : w.codes[i] - traits.offset;
    sum[i / kHalf] += q_w * x.q[i];
    sum_q[i / kHalf] += x.q[i];
  }
  float d = BlockScale(traits, w.d_bits);
  if (traits.half_scales) {
    const float first = static_cast<float>(w.scale[0]) * static_cast<float>(sum[0]);
    const float second = static_cast<float>(w.scale[1]) * static_cast<float>(sum[1]);
    acc = std::fma(first + second, d * x.s, acc);
  } else {
    float scale = d * static_cast<float>(w.scale[0]);
    acc = std::fma(static_cast<float>(sum[0] + sum[1]), scale * x.s, acc);
  }
  float m = HalfToFloat(w.m_bits) * (w.negate_m ? -1.0f : 1.0f);
  if (traits.minima == 1) {
    float min = m * static_cast<float>(w.min[0]);
    acc = std::fma(min, x.s * static_cast<float>(sum_q[0] + sum_q[1]), acc);
  }
  if (traits.minima == 2) {
    for (int half = 0; half < 2; ++half) {
      float min = m * static_cast<float>(w.min[half]);
      acc = std::fma(min, x.s * static_cast<float>(sum_q[half]), acc);
    }
  }
  return acc;
}

LM_FUSES
void MultiplyQuantized(const ReferenceMatrix& w, Tensor x, Tensor out) {
  const QuantizedTraits& traits = GetQuantizedTraits(w.dtype());
  int64_t num_blocks = w.cols() / kActivationBlock;
  std::vector<ActivationBlock> blocks(x.rows * num_blocks);
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t b = 0; b < num_blocks; ++b) {
      ActivationBlock& block = blocks[t * num_blocks + b];
      block.s = QuantizeToInt8(x.row<float>(t) + b * kActivationBlock, kActivationBlock, block.q);
    }
  }
  for (int64_t n = 0; n < w.rows(); ++n) {
    for (int64_t t = 0; t < x.rows; ++t) out.row<float>(t)[n] = 0;
    for (int64_t b = 0; b < num_blocks; ++b) {
      QuantizedBlock weights;
      DecodeQuantizedBlock(w.dtype(), w.row(n), b, &weights);
      for (int64_t t = 0; t < x.rows; ++t) {
        float& acc = out.row<float>(t)[n];
        acc = MultiplyBlock(traits, weights, blocks[t * num_blocks + b], acc);
      }
    }
  }
}

LM_FUSES
void MultiplyFloat(const ReferenceMatrix& w, Tensor x, Tensor out) {
  std::vector<float> row(w.cols());
  for (int64_t n = 0; n < w.rows(); ++n) {
    DequantizeRow(w.dtype(), w.row(n), w.cols(), row.data());  // exact
    for (int64_t t = 0; t < x.rows; ++t) {
      const float* in = x.row<float>(t);
      float& sum = out.row<float>(t)[n];
      for (int64_t begin = 0; begin < w.cols(); begin += kFloatChunk) {
        int64_t end = std::min<int64_t>(begin + kFloatChunk, w.cols());
        float acc = 0;
        for (int64_t i = begin; i < end; ++i) acc = std::fma(row[i], in[i], acc);
        sum = begin == 0 ? acc : sum + acc;
      }
    }
  }
}

}  // namespace

absl::Status ReferenceBackend::MatMul(const WeightMatrix& w, Tensor x, Tensor bias, Tensor out) {
  RETURN_IF_ERROR(CheckMatMul(w, x, bias, out));
  const auto& matrix = static_cast<const ReferenceMatrix&>(w);
  if (Traits(w.dtype()).quantised) {
    MultiplyQuantized(matrix, x, out);
  } else {
    MultiplyFloat(matrix, x, out);
  }
  if (const Tensor scales = w.row_scales(); !scales.empty()) {
    for (int64_t t = 0; t < x.rows; ++t) {
      for (int64_t n = 0; n < w.rows(); ++n) out.row<float>(t)[n] *= scales.row<float>(0)[n];
    }
  }
  if (bias.empty()) return absl::OkStatus();
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t n = 0; n < w.rows(); ++n) out.row<float>(t)[n] += bias.row<float>(0)[n];
  }
  return absl::OkStatus();
}

}  // namespace lm
