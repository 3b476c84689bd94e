// Element types: plain numbers and GGUF's quantised blocks. A block type stores `block_size`
// consecutive values of a row in `block_bytes` bytes; plain types are blocks of one.
#ifndef LM_ENGINE_TENSOR_DTYPE_H_
#define LM_ENGINE_TENSOR_DTYPE_H_

#include <cstdint>

namespace lm {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI8,
  kI16,
  kI32,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  // From here on: types of codes, see gguf/coded_blocks.h.
  kNVFP4,
  kIQ3_XXS,
  kIQ3_S,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ1_S,
  kIQ1_M,
  kTQ1_0,
  kTQ2_0,
  kQ1_0,
  kQ2_0,
};

inline constexpr int kNumDTypes = static_cast<int>(DType::kQ2_0) + 1;

struct DTypeTraits {
  const char* name;  // as GGUF tools print it, e.g. "Q4_K"
  int block_size;    // values a block
  int block_bytes;   // bytes a block
  bool quantised;
};

const DTypeTraits& Traits(DType dtype);

// Bytes of a row of `values` values.
// REQUIRES: values is a multiple of the block size.
inline int64_t RowBytes(DType dtype, int64_t values) {
  const DTypeTraits& traits = Traits(dtype);
  return values / traits.block_size * traits.block_bytes;
}

}  // namespace lm

#endif  // LM_ENGINE_TENSOR_DTYPE_H_
