// GGUF's quantised blocks as a GPU reads them: 32 weights, their codes packed four to a word.
//
// Block sizes and the offsets of all fields are even, and matrices begin on aligned memory: a block
// is read as 16-bit units. The layouts are written down in gguf/k_blocks.cc, legacy_blocks.cc and
// iq4_blocks.cc; MXFP4's blocks are made even when they are loaded (loaded_blocks.cc): its scale as
// a BF16, then the codes.
#ifndef LM_ENGINE_BACKEND_CUDA_WEIGHT_BLOCK_H_
#define LM_ENGINE_BACKEND_CUDA_WEIGHT_BLOCK_H_

#include "engine/backend/cuda/host_device.cuh"
#include "engine/tensor/dtype.h"

namespace lm::cuda {

struct WeightFormat {
  int values;        // a block
  int bytes;         // a block
  int offset;        // q_w = code - offset, codes being signed bytes
  bool half_scales;  // two sub-blocks of 16 with scales of their own
  int minima;        // 0, 1 for the 32, or 2: one for each 16
};

template <DType kType>
inline constexpr WeightFormat kWeightFormat{};
template <>
inline constexpr WeightFormat kWeightFormat<DType::kQ4_0>{32, 18, 8, false, 0};
template <>
inline constexpr WeightFormat kWeightFormat<DType::kQ4_1>{32, 20, 0, false, 1};
template <>
inline constexpr WeightFormat kWeightFormat<DType::kQ5_0>{32, 22, 16, false, 0};
template <>
inline constexpr WeightFormat kWeightFormat<DType::kQ5_1>{32, 24, 0, false, 1};
template <>
inline constexpr WeightFormat kWeightFormat<DType::kQ8_0>{32, 34, 0, false, 0};
template <>
inline constexpr WeightFormat kWeightFormat<DType::kQ2_K>{256, 84, 0, true, 2};
template <>
inline constexpr WeightFormat kWeightFormat<DType::kQ3_K>{256, 110, 4, true, 0};
template <>
inline constexpr WeightFormat kWeightFormat<DType::kQ4_K>{256, 144, 0, false, 1};
template <>
inline constexpr WeightFormat kWeightFormat<DType::kQ5_K>{256, 176, 0, false, 1};
template <>
inline constexpr WeightFormat kWeightFormat<DType::kQ6_K>{256, 210, 32, true, 0};
template <>
inline constexpr WeightFormat kWeightFormat<DType::kIQ4_NL>{32, 18, 0, false, 0};
template <>
inline constexpr WeightFormat kWeightFormat<DType::kIQ4_XS>{256, 136, 0, false, 0};
template <>
inline constexpr WeightFormat kWeightFormat<DType::kMXFP4>{32, 18, 0, false, 0};

// The types of gguf/coded_blocks.h are decoded when they are loaded, to blocks of 32: d as F32, two
// scales as int32, and q_w as bytes. Where the file's type has one scale for the 32, d is
// multiplied by it and they are 1.
inline constexpr DType kExpanded = DType::kI8;
struct ExpandedBlock {
  float d;
  int32_t scale[2];
  int8_t q[32];
};
template <>
inline constexpr WeightFormat kWeightFormat<kExpanded>{32, sizeof(ExpandedBlock), 0, true, 0};

// Weight i, of half h = i / 16, is d * scale[h] * q_w + m * min[h]; q_w is byte i % 4 of
// codes[i / 4], less the format's offset, or what the type's table has for it.
struct WeightBlock {
  int32_t codes[8];
  float d;
  float m;  // with its sign; 0 in types without minima
  int scale[2];
  int min[2];
};

// The byte and the 32-bit word at byte offset `at`; `at` of a word is even.
LM_HOST_DEVICE int ByteAt(const uint16_t* block, int at) {
  return (block[at / 2] >> (at % 2 * 8)) & 255;
}
LM_HOST_DEVICE uint32_t WordAt(const uint16_t* block, int at) {
  return block[at / 2] | (uint32_t{block[at / 2 + 1]} << 16);
}

// 16 bytes at `at` hold 32 codes: value i in the low half of byte i, value i + 16 in its high half.
LM_HOST_DEVICE void UnpackNibbles(const uint16_t* block, int at, WeightBlock* out) {
  for (int i = 0; i < 4; ++i) {
    uint32_t word = WordAt(block, at + 4 * i);
    out->codes[i] = word & 0x0f0f0f0fu;
    out->codes[i + 4] = (word >> 4) & 0x0f0f0f0fu;
  }
}

// Bit i of `high` becomes bit 4 of value i.
LM_HOST_DEVICE void AddFifthBits(uint32_t high, WeightBlock* out) {
  for (int i = 0; i < 8; ++i) {
    uint32_t four = (high >> (4 * i)) & 15u;
    out->codes[i] |= ((four * 0x00204081u) & 0x01010101u) << 4;
  }
}

// What the 4-bit codes of types with a table stand for (quantized_block.h), a byte each: the first
// eight, then the others.
inline constexpr uint64_t kIq4Low = 0xf6eaddcfbfad9881u;     // -127 -104 -83 -65 -49 -35 -22 -10
inline constexpr uint64_t kIq4High = 0x7159453526190d01u;    // 1 13 25 38 53 69 89 113
inline constexpr uint64_t kMxfp4Low = 0x0c08060403020100u;   // 0 1 2 3 4 6 8 12
inline constexpr uint64_t kMxfp4High = 0xf4f8fafcfdfeff00u;  // 0 and the others' negatives

// The 6-bit scale and minimum of 32 values in Q4_K and Q5_K, from the 12 bytes at 4.
LM_HOST_DEVICE void UnpackScaleAndMin(const uint16_t* block, int part, WeightBlock* out) {
  if (part < 4) {
    out->scale[0] = ByteAt(block, 4 + part) & 63;
    out->min[0] = ByteAt(block, 8 + part) & 63;
  } else {
    int low = ByteAt(block, 8 + part);
    out->scale[0] = (low & 15) | ((ByteAt(block, part) >> 6) << 4);
    out->min[0] = (low >> 4) | ((ByteAt(block, 4 + part) >> 6) << 4);
  }
  out->scale[1] = out->scale[0];
  out->min[1] = out->min[0];
  out->d = LoadF16(block[0]);
  out->m = -LoadF16(block[1]);
}

// The weights [32 * index, 32 * index + 32) of a row that begins at `row`.
template <DType kType>
LM_HOST_DEVICE WeightBlock LoadWeightBlock(const uint16_t* row, int64_t index) {
  constexpr WeightFormat kFormat = kWeightFormat<kType>;
  constexpr int kParts = kFormat.values / 32;
  const uint16_t* block = row + index / kParts * (kFormat.bytes / 2);
  const int part = static_cast<int>(index % kParts);
  WeightBlock out;
  out.d = LoadF16(block[0]);
  out.m = 0;
  out.scale[0] = out.scale[1] = 1;
  out.min[0] = out.min[1] = 0;
  if constexpr (kType == DType::kQ4_0) {
    UnpackNibbles(block, 2, &out);
  } else if constexpr (kType == DType::kQ4_1) {
    UnpackNibbles(block, 4, &out);
    out.m = LoadF16(block[1]);
    out.min[0] = out.min[1] = 1;
  } else if constexpr (kType == DType::kQ5_0) {
    UnpackNibbles(block, 6, &out);
    AddFifthBits(WordAt(block, 2), &out);
  } else if constexpr (kType == DType::kQ5_1) {
    UnpackNibbles(block, 8, &out);
    AddFifthBits(WordAt(block, 4), &out);
    out.m = LoadF16(block[1]);
    out.min[0] = out.min[1] = 1;
  } else if constexpr (kType == DType::kQ8_0) {
    for (int i = 0; i < 8; ++i) out.codes[i] = WordAt(block, 2 + 4 * i);
  } else if constexpr (kType == DType::kQ2_K) {
    for (int i = 0; i < 8; ++i) {
      out.codes[i] = (WordAt(block, 16 + part / 4 * 32 + 4 * i) >> (part % 4 * 2)) & 0x03030303u;
    }
    for (int half = 0; half < 2; ++half) {
      int both = ByteAt(block, 2 * part + half);
      out.scale[half] = both & 15;
      out.min[half] = both >> 4;
    }
    out.d = LoadF16(block[40]);
    out.m = -LoadF16(block[41]);
  } else if constexpr (kType == DType::kQ3_K) {
    for (int i = 0; i < 8; ++i) {
      uint32_t low = WordAt(block, 32 + part / 4 * 32 + 4 * i) >> (part % 4 * 2);
      uint32_t high = WordAt(block, 4 * i) >> part;
      out.codes[i] = (low & 0x03030303u) | ((high & 0x01010101u) << 2);
    }
    for (int half = 0; half < 2; ++half) {
      int i = 2 * part + half;
      int low = (ByteAt(block, 96 + i % 8) >> (i / 8 * 4)) & 15;
      int high = (ByteAt(block, 104 + i % 4) >> (i / 4 * 2)) & 3;
      out.scale[half] = (low | (high << 4)) - 32;
    }
    out.d = LoadF16(block[54]);
  } else if constexpr (kType == DType::kQ4_K) {
    for (int i = 0; i < 8; ++i) {
      uint32_t word = WordAt(block, 16 + part / 2 * 32 + 4 * i);
      out.codes[i] = (word >> (part % 2 * 4)) & 0x0f0f0f0fu;
    }
    UnpackScaleAndMin(block, part, &out);
  } else if constexpr (kType == DType::kQ5_K) {
    for (int i = 0; i < 8; ++i) {
      uint32_t low = WordAt(block, 48 + part / 2 * 32 + 4 * i) >> (part % 2 * 4);
      uint32_t high = WordAt(block, 16 + 4 * i) >> part;
      out.codes[i] = (low & 0x0f0f0f0fu) | ((high & 0x01010101u) << 4);
    }
    UnpackScaleAndMin(block, part, &out);
  } else if constexpr (kType == DType::kQ6_K) {
    const int n = part / 4;
    const int j = part % 4;
    for (int i = 0; i < 8; ++i) {
      uint32_t low = WordAt(block, 64 * n + 32 * (j % 2) + 4 * i) >> (j / 2 * 4);
      uint32_t high = WordAt(block, 128 + 32 * n + 4 * i) >> (2 * j);
      out.codes[i] = (low & 0x0f0f0f0fu) | ((high & 0x03030303u) << 4);
    }
    for (int half = 0; half < 2; ++half) {
      out.scale[half] = static_cast<int8_t>(ByteAt(block, 192 + 2 * part + half));
    }
    out.d = LoadF16(block[104]);
  } else if constexpr (kType == DType::kIQ4_NL) {
    UnpackNibbles(block, 2, &out);
  } else if constexpr (kType == DType::kMXFP4) {
    UnpackNibbles(block, 2, &out);
    out.d = BitsToFloat(uint32_t{block[0]} << 16);
  } else if constexpr (kType == kExpanded) {
    out.d = BitsToFloat(WordAt(block, 0));
    for (int half = 0; half < 2; ++half) out.scale[half] = WordAt(block, 4 + 4 * half);
    for (int i = 0; i < 8; ++i) out.codes[i] = WordAt(block, 12 + 4 * i);
  } else {
    static_assert(kType == DType::kIQ4_XS);
    UnpackNibbles(block, 8 + 16 * part, &out);
    int low = (ByteAt(block, 4 + part / 2) >> (part % 2 * 4)) & 15;
    int high = (block[1] >> (2 * part)) & 3;
    out.scale[0] = out.scale[1] = (low | (high << 4)) - 32;
  }
  return out;
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_WEIGHT_BLOCK_H_
