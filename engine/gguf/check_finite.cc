// Looks for NaN and infinity. A block's integers cannot be either, and no product of a finite F16
// scale with them leaves F32's range, so of a block only the F16 scales are read. All tests are one
// on the exponent: all ones is NaN or infinity.
//
// Every run is first folded into one word without branches, at the speed of memory; only a run that
// turns out bad is searched again for the place.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/gguf/block_format.h"
#include "engine/gguf/block_layout.h"
#include "engine/gguf/coded_blocks.h"

namespace lm {
namespace {

// Where a block's F16 scales are: one, or two next to each other.
struct Scales {
  int offset;
  int count;
};

Scales ScalesOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ2_K:
      return {80, 2};
    case DType::kQ3_K:
      return {108, 1};
    case DType::kQ6_K:
      return {208, 1};
    case DType::kTQ1_0:
      return {52, 1};
    case DType::kTQ2_0:
      return {64, 1};
    default:
      return {0, 1};
  }
}

// The top bit is set where the exponent is all ones: adding its lowest bit then carries out of it.
template <typename Word, Word kExponent>
Word Fold(const uint8_t* bytes) {
  Word word;
  std::memcpy(&word, bytes, sizeof(word));
  constexpr Word kLowest = kExponent & (~kExponent + 1);
  return static_cast<Word>((word & kExponent) + kLowest);
}

template <typename Word>
bool TopBit(Word word) {
  return (word >> (8 * sizeof(Word) - 1)) != 0;
}

constexpr auto FoldHalf = Fold<uint16_t, 0x7c00>;

template <typename Word, Word kExponent>
absl::Status CheckValues(const uint8_t* bytes, int64_t values, int64_t first) {
  Word folded = 0;
  for (int64_t v = 0; v < values; ++v) folded |= Fold<Word, kExponent>(bytes + v * sizeof(Word));
  if (!TopBit(folded)) return absl::OkStatus();
  int64_t v = 0;
  while (!TopBit(Fold<Word, kExponent>(bytes + v * sizeof(Word)))) ++v;
  return absl::InvalidArgumentError(absl::StrCat("value ", first + v, " is NaN or infinite"));
}

// One scale a block, or two next to each other.
template <int kCount>
uint16_t FoldScales(const uint8_t* first, int64_t num_blocks, int64_t block_bytes) {
  uint16_t folded = 0;
  for (int64_t b = 0; b < num_blocks; ++b) {
    for (int i = 0; i < kCount; ++i) folded |= FoldHalf(first + b * block_bytes + 2 * i);
  }
  return folded;
}

absl::Status BadScale(DType dtype, int64_t block) {
  const DTypeTraits& traits = Traits(dtype);
  return absl::InvalidArgumentError(absl::StrCat(
      "the scale of ", traits.name, " block ", block, " (values ", block * traits.block_size,
      " to ", (block + 1) * traits.block_size - 1, ") is NaN or infinite"));
}

// Its scales are powers of two, of which the greatest can leave F32's range.
absl::Status CheckMxfp4Scales(const uint8_t* bytes, int64_t values, int64_t first_value) {
  const DTypeTraits& traits = Traits(DType::kMXFP4);
  for (int64_t b = 0; b < values / traits.block_size; ++b) {
    const uint8_t* block = bytes + b * traits.block_bytes;
    if (block[0] <= kGreatestMxfp4Scale) continue;
    float decoded[32];
    DecodeMXFP4(block, decoded);
    if (std::any_of(decoded, decoded + 32, [](float x) { return !std::isfinite(x); })) {
      return BadScale(DType::kMXFP4, b + first_value / traits.block_size);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckIq1MScales(const uint8_t* bytes, int64_t values, int64_t first_value) {
  constexpr uint16_t kExponent = 0x7c00;
  const DTypeTraits& traits = Traits(DType::kIQ1_M);
  for (int64_t b = 0; b < values / traits.block_size; ++b) {
    if ((Iq1MScaleBits(bytes + b * traits.block_bytes) & kExponent) != kExponent) continue;
    return BadScale(DType::kIQ1_M, b + first_value / traits.block_size);
  }
  return absl::OkStatus();
}

absl::Status CheckScales(DType dtype, const uint8_t* bytes, int64_t values, int64_t first_value) {
  const DTypeTraits& traits = Traits(dtype);
  const Scales scales = ScalesOf(dtype);
  const int64_t num_blocks = values / traits.block_size;
  const uint8_t* first = bytes + scales.offset;
  const uint16_t folded = scales.count == 1 ? FoldScales<1>(first, num_blocks, traits.block_bytes)
                                            : FoldScales<2>(first, num_blocks, traits.block_bytes);
  if (!TopBit(folded)) return absl::OkStatus();
  const int second = 2 * (scales.count - 1);  // offset of the other scale, or of the same again
  int64_t b = 0;
  auto bad = [&](int offset) { return TopBit(FoldHalf(first + b * traits.block_bytes + offset)); };
  while (!bad(0) && !bad(second)) ++b;
  return BadScale(dtype, b + first_value / traits.block_size);
}

}  // namespace

absl::Status CheckFinite(DType dtype, const void* blocks, int64_t values, int64_t first) {
  const uint8_t* bytes = static_cast<const uint8_t*>(blocks);
  assert(values % Traits(dtype).block_size == 0);
  switch (dtype) {
    case DType::kF32:
      return CheckValues<uint32_t, 0x7f800000>(bytes, values, first);
    case DType::kF16:
      return CheckValues<uint16_t, 0x7c00>(bytes, values, first);
    case DType::kBF16:
      return CheckValues<uint16_t, 0x7f80>(bytes, values, first);
    case DType::kMXFP4:
      return CheckMxfp4Scales(bytes, values, first);
    case DType::kIQ1_M:
      return CheckIq1MScales(bytes, values, first);
    case DType::kNVFP4:  // whose scales are all finite
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
      return absl::OkStatus();
    default:
      return CheckScales(dtype, bytes, values, first);
  }
}

}  // namespace lm
