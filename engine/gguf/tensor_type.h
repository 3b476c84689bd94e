// ggml's numbers for tensor types, as they stand in a GGUF file.
#ifndef LM_ENGINE_GGUF_TENSOR_TYPE_H_
#define LM_ENGINE_GGUF_TENSOR_TYPE_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "engine/tensor/dtype.h"

namespace lm {

// Nothing where the number is not one of the types we compute with, or I32, of numbers of things.
std::optional<DType> DTypeOfGgml(uint32_t number);

// The number of a type. REQUIRES: it is not I8.
uint32_t GgmlNumber(DType dtype);

// The name that GGUF tools print for a number, also for types we do not compute with; "unknown"
// where ggml has none either.
absl::string_view GgmlTypeName(uint32_t number);

}  // namespace lm

#endif  // LM_ENGINE_GGUF_TENSOR_TYPE_H_
