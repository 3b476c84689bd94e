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

// A block's codes as what they stand for.
struct WeightBlock {
  QuantizedBlock numbers;
  int16_t q[kActivationBlock];
};

struct ActivationBlock {
  int8_t q[kActivationBlock];
  float s;
};

// acc + the product of 32 weights and 32 activations.
float MultiplyBlock(const QuantizedTraits& traits, const WeightBlock& block,
                    const ActivationBlock& x, float acc) {
  const QuantizedBlock& w = block.numbers;
  int sum[2] = {0, 0};    // of q_w * q, for each half
  int sum_q[2] = {0, 0};  // of q
  for (int half = 0; half < 2; ++half) {
    for (int i = half * kHalf; i < (half + 1) * kHalf; ++i) {
      sum[half] += block.q[i] * x.q[i];
      sum_q[half] += x.q[i];
    }
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
      WeightBlock weights;
      DecodeQuantizedBlock(w.dtype(), w.row(n), b, &weights.numbers);
      for (int i = 0; i < kActivationBlock; ++i) {
        const int code = weights.numbers.codes[i];
        weights.q[i] = static_cast<int16_t>(traits.table != nullptr ? traits.table[code]
                                                                    : code - traits.offset);
      }
      for (int64_t t = 0; t < x.rows; ++t) {
        float& acc = out.row<float>(t)[n];
        acc = MultiplyBlock(traits, weights, blocks[t * num_blocks + b], acc);
      }
    }
  }
}

LM_FUSES
void MultiplyFloat(const ReferenceMatrix& w, Tensor x, Tensor out) {
  std::vector<float> rows(kSumsAtOnce * w.cols());
  for (int64_t first = 0; first < w.rows(); first += kSumsAtOnce) {
    const int64_t count = std::min<int64_t>(kSumsAtOnce, w.rows() - first);
    for (int64_t j = 0; j < count; ++j) {  // exact
      DequantizeRow(w.dtype(), w.row(first + j), w.cols(), rows.data() + j * w.cols());
    }
    for (int64_t t = 0; t < x.rows; ++t) {
      float* sums = out.row<float>(t) + first;
      for (int64_t begin = 0; begin < w.cols(); begin += kFloatChunk) {
        const int64_t length = std::min<int64_t>(kFloatChunk, w.cols() - begin);
        float acc[kSumsAtOnce] = {};
        AddProducts(x.row<float>(t) + begin, rows.data() + begin, w.cols(), length, acc);
        for (int64_t j = 0; j < count; ++j) sums[j] = begin == 0 ? acc[j] : sums[j] + acc[j];
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
