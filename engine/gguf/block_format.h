// GGUF's block formats, decoded. This is the definition that every kernel is tested against; the
// kernels themselves read blocks in their own ways.
//
// The layouts are ggml's (ggml-common.h); layout and arithmetic of each are written above its
// decoder in legacy_blocks.cc, k_blocks.cc, iq4_blocks.cc and coded_blocks.cc.
#ifndef LM_ENGINE_GGUF_BLOCK_FORMAT_H_
#define LM_ENGINE_GGUF_BLOCK_FORMAT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/tensor/dtype.h"

namespace lm {

// Decodes `values` consecutive values of a row in any float or block format to F32.
// REQUIRES: dtype is not an integer type; values is a multiple of its block size.
void DequantizeRow(DType dtype, const void* blocks, int64_t values, float* out);

// InvalidArgument, naming the first bad block, where a scale (or a plain value) is NaN or infinite.
// Reads at the speed of memory, so that a whole model can be checked while it loads. OK for integer
// types. Counts from `first`, the place of the first value. REQUIRES: values and first are
// multiples of the block size.
absl::Status CheckFinite(DType dtype, const void* blocks, int64_t values, int64_t first = 0);

}  // namespace lm

#endif  // LM_ENGINE_GGUF_BLOCK_FORMAT_H_
