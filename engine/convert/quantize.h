// Encoders of GGUF's block formats, written from their decoders (engine/gguf/block_layout.h): of
// the codes and scales that a block can hold, those with about the least sum of squared errors.
//
//   std::vector<char> blocks(RowBytes(DType::kQ4_K, 4096));
//   QuantizeRow(DType::kQ4_K, row, blocks.data());
#ifndef LM_ENGINE_CONVERT_QUANTIZE_H_
#define LM_ENGINE_CONVERT_QUANTIZE_H_

#include "absl/types/span.h"
#include "engine/tensor/dtype.h"

namespace lm {

// Whether there is an encoder: F32, F16, BF16, Q4_0, Q5_0, Q8_0, Q4_K, Q6_K.
bool CanQuantize(DType dtype);

// Writes RowBytes(dtype, values.size()) bytes. A value beyond F16's range becomes infinite as F16,
// and so does its block's scale, whatever
// the codes then are.
// REQUIRES: CanQuantize(dtype); values are finite, and whole blocks; weights are as many, and > 0.
void QuantizeRow(DType dtype, absl::Span<const float> values, absl::Span<const float> weights,
                 char* blocks);

}  // namespace lm

#endif  // LM_ENGINE_CONVERT_QUANTIZE_H_
