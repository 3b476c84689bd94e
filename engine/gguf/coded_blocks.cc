// Below, p is the part of 32 weights, r the run of 8 (0 to 3) in it, and the fields stand in the
// order of the bytes. Codes of a run come from the entry e of the codebook, and signs s, bit by
// bit.
#include "engine/gguf/coded_blocks.h"

#include <bit>
#include <cstring>

#include "engine/gguf/block_layout.h"
#include "engine/gguf/codebooks.h"

namespace lm {
namespace {

// Eight numbers of kBits side by side, to a byte each.
template <int kBits>
constexpr uint64_t Spread(uint64_t bits) {
  constexpr uint64_t kOnes = (1u << kBits) - 1, kPairs = (1u << 2 * kBits) - 1,
                     kFours = (1u << 4 * kBits) - 1;
  bits = (bits | bits << (32 - 4 * kBits)) & kFours * 0x0000000100000001;
  bits = (bits | bits << (16 - 2 * kBits)) & kPairs * 0x0001000100010001;
  return (bits | bits << (8 - kBits)) & kOnes * 0x0101010101010101;
}

void StoreRun(uint64_t codes, int run, CodedWeights* out) {
  std::memcpy(out->codes + 8 * run, &codes, sizeof(codes));
}

void StoreSigned2(uint16_t entry, uint8_t signs, int run, CodedWeights* out) {
  StoreRun(Spread<2>(entry) | Spread<1>(signs) << 2, run, out);
}

void StoreSigned3(uint16_t first, uint16_t second, uint8_t signs, int run, CodedWeights* out) {
  StoreRun(Spread<3>(first | uint64_t{second} << 12) | Spread<1>(signs) << 3, run, out);
}

// Seven signs of eight: the number of minuses is even.
uint8_t CompleteSigns(uint32_t seven) {
  seven &= 127;
  return static_cast<uint8_t>(seven | (std::popcount(seven) & 1) << 7);
}

void SetOddScales(int first, int second, CodedWeights* out) {
  out->scale[0] = 2 * first + 1;
  out->scale[1] = 2 * second + 1;
}

//   E4M3 scales 4 bytes | qs 32 bytes     64 values; of 16, values j and j + 8 share byte j
void DecodeNvfp4(const uint8_t* block, int part, CodedWeights* out) {
  constexpr uint16_t kOne = 0x3c00;
  out->d_bits = kOne;
  for (int half = 0; half < 2; ++half) {
    const int sixteen = 2 * part + half;
    out->scale[half] = Nvfp4Scale(Nvfp4ScaleBits(block, sixteen));
    const uint8_t* qs = block + 4 + 8 * sixteen;
    for (int j = 0; j < 8; ++j) {
      out->codes[16 * half + j] = qs[j] & 15;
      out->codes[16 * half + 8 + j] = qs[j] >> 4;
    }
  }
}

//   d F16 | qs 32 x 16 bits               of a part: four e of 8 bits, four signs of 7, scale 4
//   bits
void DecodeIq2Xxs(const uint8_t* block, int part, CodedWeights* out) {
  const uint8_t* qs = block + 2 + 8 * part;
  const uint32_t rest = LoadU32(qs + 4);
  SetOddScales(rest >> 28, rest >> 28, out);
  for (int r = 0; r < 4; ++r) {
    StoreSigned2(kIq2XxsCodebook[qs[r]], CompleteSigns(rest >> 7 * r), r, out);
  }
}

//   d F16 | qs 32 x (e 9 bits, s 7 bits) | scales 8 bytes, halves for 16 values
void DecodeIq2Xs(const uint8_t* block, int part, CodedWeights* out) {
  const uint8_t scales = block[66 + part];
  SetOddScales(scales & 15, scales >> 4, out);
  for (int r = 0; r < 4; ++r) {
    const uint16_t q = LoadU16(block + 2 + 8 * part + 2 * r);
    StoreSigned2(kIq2XsCodebook[q & 511], CompleteSigns(q >> 9), r, out);
  }
}

//   d F16 | qs 32 bytes | signs 32 bytes | qh 8 bytes | scales 8 bytes, halves for 16 values
// e is byte 4 p + r of qs and, above it, bits 2 r of qh[p].
void DecodeIq2S(const uint8_t* block, int part, CodedWeights* out) {
  const uint8_t *qs = block + 2 + 4 * part, *signs = qs + 32;
  const uint8_t qh = block[66 + part], scales = block[74 + part];
  SetOddScales(scales & 15, scales >> 4, out);
  for (int r = 0; r < 4; ++r) {
    StoreSigned2(kIq2SCodebook[qs[r] | (qh >> 2 * r & 3) << 8], signs[r], r, out);
  }
}

//   d F16 | qs 64 bytes | 8 x 32 bits     of a part: eight e for 4 values each; then four signs of
//   7
//                                         bits and the scale of 4
void DecodeIq3Xxs(const uint8_t* block, int part, CodedWeights* out) {
  const uint8_t* qs = block + 2 + 8 * part;
  const uint32_t rest = LoadU32(block + 66 + 4 * part);
  SetOddScales(rest >> 28, rest >> 28, out);
  for (int r = 0; r < 4; ++r) {
    StoreSigned3(kIq3XxsCodebook[qs[2 * r]], kIq3XxsCodebook[qs[2 * r + 1]],
                 CompleteSigns(rest >> 7 * r), r, out);
  }
}

//   d F16 | qs 64 bytes | qh 8 bytes | signs 32 bytes | scales 4 bytes, halves for a part
// e of 4 values is byte 8 p + i of qs and, above it, bit i of qh[p].
void DecodeIq3S(const uint8_t* block, int part, CodedWeights* out) {
  const uint8_t *qs = block + 2 + 8 * part, *signs = block + 74 + 4 * part;
  const uint8_t qh = block[66 + part];
  const int scale = block[106 + part / 2] >> part % 2 * 4 & 15;
  SetOddScales(scale, scale, out);
  auto entry = [&](int i) { return kIq3SCodebook[qs[i] | (qh >> i & 1) << 8]; };
  for (int r = 0; r < 4; ++r) StoreSigned3(entry(2 * r), entry(2 * r + 1), signs[r], r, out);
}

// Levels are -1, 0 and 1, an eighth up or down: in IQ1's units -8, 0 and 8 plus or minus 1.
void StoreShifted(uint16_t entry, bool down, int run, CodedWeights* out) {
  StoreRun(Spread<2>(entry) | (down ? 0x0404040404040404 : 0), run, out);
}

//   d F16 | qs 32 bytes | qh 8 x 16 bits  of qh: four times 3 high bits of e, scale 3 bits, down
void DecodeIq1S(const uint8_t* block, int part, CodedWeights* out) {
  const uint8_t* qs = block + 2 + 4 * part;
  const uint16_t qh = LoadU16(block + 34 + 2 * part);
  SetOddScales(qh >> 12 & 7, qh >> 12 & 7, out);
  for (int r = 0; r < 4; ++r) {
    StoreShifted(kIq1Codebook[qs[r] | (qh >> 3 * r & 7) << 8], qh >> 15, r, out);
  }
}

//   qs 32 bytes | qh 16 bytes | scales 4 x 16 bits
// Half r % 2 of qh[2 p + r / 2] has 3 high bits of e, and down. Of scales, the 12 low bits of word
// p / 2 are four scales of 16 values, and the 4 high bits of all, d.
void DecodeIq1M(const uint8_t* block, int part, CodedWeights* out) {
  const uint8_t *qs = block + 4 * part, *qh = block + 32 + 2 * part;
  const int scales = LoadU16(block + 48 + part / 2 * 2) >> part % 2 * 6;
  SetOddScales(scales & 7, scales >> 3 & 7, out);
  for (int r = 0; r < 4; ++r) {
    const int half = qh[r / 2] >> r % 2 * 4;
    StoreShifted(kIq1Codebook[qs[r] | (half & 7) << 8], half & 8, r, out);
  }
}

//   qs 48 bytes | qh 4 bytes | d F16      256 values
// A byte is five (of qh four) digits to the base 3, as a fraction of 256: digit n is the integer
// part of 3 times what 3^n times the byte has after the point. Runs of 32 values have the same n
// and bytes side by side: digits 0 to 4 of the bytes from 0, then runs of 16 of those from 32, and
// runs of 4 of qh.
void DecodeTq1(const uint8_t* block, int part, CodedWeights* out) {
  static constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};
  for (int i = 0; i < 32; ++i) {
    const int v = 32 * part + i;
    int byte, n;
    if (v < 160) {
      byte = v % 32, n = v / 32;
    } else if (v < 240) {
      byte = 32 + (v - 160) % 16, n = (v - 160) / 16;
    } else {
      byte = 48 + (v - 240) % 4, n = (v - 240) / 4;
    }
    const auto fraction = static_cast<uint8_t>(block[byte] * kPowers[n]);
    out->codes[i] = static_cast<uint8_t>(fraction * 3 >> 8);
  }
}

//   qs 64 bytes | d F16                   256 values, as Q2_K's
void DecodeTq2(const uint8_t* block, int part, CodedWeights* out) {
  for (int i = 0; i < 32; ++i) out->codes[i] = block[part / 4 * 32 + i] >> part % 4 * 2 & 3;
}

//   d F16 | qs                            64 values of 2 bits, 128 of 1, the first lowest
template <int kBits>
void DecodePlain(const uint8_t* block, int part, CodedWeights* out) {
  const uint8_t* qs = block + 2 + 4 * kBits * part;
  for (int r = 0; r < 4; ++r) {
    uint64_t bits = 0;
    std::memcpy(&bits, qs + kBits * r, kBits);
    StoreRun(Spread<kBits>(bits), r, out);
  }
}

}  // namespace

uint16_t Iq1MScaleBits(const uint8_t* block) {
  uint16_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= (LoadU16(block + 48 + 2 * i) >> 12) << 4 * i;
  return bits;
}

void DecodeCodedWeights(DType dtype, const uint8_t* block, int part, CodedWeights* out) {
  out->scale[0] = out->scale[1] = 1;
  out->d_bits = LoadU16(block);
  switch (dtype) {
    case DType::kNVFP4:
      return DecodeNvfp4(block, part, out);
    case DType::kIQ3_XXS:
      return DecodeIq3Xxs(block, part, out);
    case DType::kIQ3_S:
      return DecodeIq3S(block, part, out);
    case DType::kIQ2_XXS:
      return DecodeIq2Xxs(block, part, out);
    case DType::kIQ2_XS:
      return DecodeIq2Xs(block, part, out);
    case DType::kIQ2_S:
      return DecodeIq2S(block, part, out);
    case DType::kIQ1_S:
      return DecodeIq1S(block, part, out);
    case DType::kIQ1_M:
      out->d_bits = Iq1MScaleBits(block);
      return DecodeIq1M(block, part, out);
    case DType::kTQ1_0:
      out->d_bits = LoadU16(block + 52);
      return DecodeTq1(block, part, out);
    case DType::kTQ2_0:
      out->d_bits = LoadU16(block + 64);
      return DecodeTq2(block, part, out);
    case DType::kQ1_0:
      return DecodePlain<1>(block, part, out);
    default:
      return DecodePlain<2>(block, part, out);
  }
}

}  // namespace lm
