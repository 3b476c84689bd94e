#include "engine/backend/reference/kv_access.h"

#include <algorithm>
#include <cstring>

#include "engine/backend/quantize_to_codes.h"
#include "engine/base/float16.h"

namespace lm {

void KvHeadOfBlock::Load(int64_t token, float* values) const {
  const int64_t first = token * dim_;
  if (dtype_ == DType::kF32) {
    std::copy_n(reinterpret_cast<const float*>(codes_) + first, dim_, values);
  } else if (dtype_ == DType::kI8) {
    std::copy_n(reinterpret_cast<const int8_t*>(codes_) + first, dim_, values);
  } else if (dtype_ == DType::kI16) {
    std::copy_n(reinterpret_cast<const int16_t*>(codes_) + first, dim_, values);
  } else {
    std::transform(reinterpret_cast<const uint16_t*>(codes_) + first,
                   reinterpret_cast<const uint16_t*>(codes_) + first + dim_, values, HalfToFloat);
  }
}

float KvHeadOfBlock::Scale(int64_t token) const {
  return HasScales(dtype_) ? scales()[token] : 1.0f;
}

void KvHeadOfBlock::Store(int64_t token, const float* values) {
  const int64_t first = token * dim_;
  if (dtype_ == DType::kI8) {
    scales()[token] = QuantizeToInt8(values, dim_, reinterpret_cast<int8_t*>(codes_) + first);
    return;
  }
  if (dtype_ == DType::kI16) {
    scales()[token] =
        QuantizeToCodes(values, dim_, kMostCode, reinterpret_cast<int16_t*>(codes_) + first);
    return;
  }
  for (int64_t i = 0; i < dim_; ++i) {
    if (dtype_ == DType::kF32) {
      reinterpret_cast<float*>(codes_)[first + i] = values[i];
    } else {
      reinterpret_cast<uint16_t*>(codes_)[first + i] = FloatToHalf(values[i]);
    }
  }
}

void KvHeadOfBlock::CopyFrom(const KvHeadOfBlock& other, int64_t tokens) {
  std::memmove(codes_, other.codes_, RowBytes(dtype_, tokens * dim_));
  if (HasScales(dtype_)) std::memmove(scales(), other.scales(), tokens * sizeof(float));
}

}  // namespace lm
