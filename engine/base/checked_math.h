// Arithmetic on sizes that come from outside: every sum and product of an untrusted number goes
// through these.
//
//   std::optional<uint64_t> bytes = CheckedMul(count, element_bytes);
//   if (!bytes) return absl::InvalidArgumentError(...);
#ifndef LM_ENGINE_BASE_CHECKED_MATH_H_
#define LM_ENGINE_BASE_CHECKED_MATH_H_

#include <cstdint>
#include <optional>

namespace lm {

// a + b, or nothing where 64 bits do not hold it.
inline std::optional<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
  uint64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

// a * b, or nothing where 64 bits do not hold it.
inline std::optional<uint64_t> CheckedMul(uint64_t a, uint64_t b) {
  uint64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// The least multiple of `alignment` that is >= value, or nothing where 64 bits do not hold it.
// REQUIRES: alignment is a power of two.
inline std::optional<uint64_t> CheckedAlignUp(uint64_t value, uint64_t alignment) {
  std::optional<uint64_t> sum = CheckedAdd(value, alignment - 1);
  if (!sum) return std::nullopt;
  return *sum & ~(alignment - 1);
}

}  // namespace lm

#endif  // LM_ENGINE_BASE_CHECKED_MATH_H_
