#include "engine/backend/cpu/panel_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "engine/backend/cpu/transpose.h"
#include "engine/backend/quantized_block_layout.h"
#include "engine/base/float16.h"
#include "engine/gguf/coded_blocks.h"

namespace lm {
namespace {

constexpr int kHalfBytes = 2 * kPanelRows;  // 16 binary16 numbers
constexpr uint16_t kHalfOne = 0x3c00;

// Values below 64 leave a byte room enough to be taken as they are by every dot product; the
// smaller the codes, the more of their products fit in 16 bits.
void SetTable(const int8_t* table, PanelFormat* format) {
  constexpr int kSmall = 64;
  const auto [least, most] = std::minmax_element(table, table + 16);
  format->signed_bytes = std::max(-*least, int{*most}) >= kSmall;
  format->bias = format->signed_bytes ? 128 : std::max(0, -*least);
  format->most_code = *most + format->bias;
  for (int i = 0; i < 16; ++i) {
    format->biased_table[i] = static_cast<uint8_t>(table[i] + format->bias);
  }
}

PanelFormat MakeFormat(DType dtype) {
  const QuantizedTraits& traits = GetQuantizedTraits(dtype);
  PanelFormat format = {};
  format.dtype = dtype;
  format.low_bits = std::bit_floor(static_cast<unsigned>(traits.code_bits));
  format.high_bits = traits.code_bits - format.low_bits;
  format.bias = traits.offset;
  format.most_code = (1 << traits.code_bits) - 1;
  format.table = traits.table;
  format.signed_bytes = traits.code_bits == 8;
  if (traits.table != nullptr) SetTable(traits.table, &format);
  format.half_scales = traits.half_scales;
  format.bf16_scale = traits.bf16_scale;
  format.e4m3_scales = dtype == DType::kNVFP4;
  format.unit = traits.unit;
  format.minima = traits.minima;
  format.negate_m = traits.minima > 0 && traits.block_scales;
  format.blocks_per_group = Traits(dtype).block_size / 32;
  format.code_bytes = 32 * kPanelRows * traits.code_bits / 8;
  if (traits.block_scales) {
    int bytes_a_row = traits.half_scales ? 2 : 1 + traits.minima;
    format.block_scale_bytes = bytes_a_row * kPanelRows;
  }
  format.head_bytes = format.e4m3_scales ? 0 : kHalfBytes * (traits.minima > 0 ? 2 : 1);
  format.group_scale_bytes = format.head_bytes + format.block_scale_bytes * format.blocks_per_group;
  // The others' would want kernels of their own.
  format.direct_scales = !format.e4m3_scales && !format.bf16_scale &&
                         (format.table == nullptr || format.signed_bytes) &&
                         (traits.block_scales || format.blocks_per_group == 1);
  format.unpacked_scales = 1 + (traits.half_scales ? 2 : 0) + traits.minima;
  format.code_step = kPanelsAPair * format.code_bytes;
  format.scale_step = kPanelsAPair * format.group_scale_bytes;
  return format;
}

// Where a code's bits lie in a plane of 64-byte lines.
struct Place {
  int byte;
  int shift;
};

Place PlaceOf(int bits, int group, int row, int j) {
  int lines = bits;  // a plane of b bits is b lines of 512 bits
  return {64 * (group % lines) + 4 * row + j, bits * (group / lines)};
}

int ReadCode(const PanelFormat& format, int row, int i, const uint8_t* codes) {
  int group = i / 4;
  Place low = PlaceOf(format.low_bits, group, row, i % 4);
  int code = (codes[low.byte] >> low.shift) & ((1 << format.low_bits) - 1);
  if (format.high_bits == 0) return code;
  Place high = PlaceOf(format.high_bits, group, row, i % 4);
  int upper = codes[64 * format.low_bits + high.byte] >> high.shift;
  return code | ((upper & ((1 << format.high_bits) - 1)) << format.low_bits);
}

// Bit 4 g + j of the fifth bits to bit g of byte j.
uint32_t SpreadFifthBits(uint32_t bits) {
  uint32_t word = 0;
  for (int group = 0; group < kGroups; ++group) {
    const uint32_t four = (bits >> (4 * group)) & 15;
    word |= ((four * 0x00204081u) & 0x01010101u) << group;  // bit j to byte j
  }
  return word;
}

// The words of a block of all 16 rows, `stride` bytes apart, to lines of a word a row.
template <int kWords>
void PackLines(const char* words, int64_t stride, uint32_t bias, uint8_t* codes) {
  using Words = Lanes<uint32_t>;
  const Words::Vector flip = {bias, bias, bias, bias};
  for (int line = 0; line < kWords; line += 4) {
    for (int row = 0; row < kPanelRows; row += 4) {
      Words::Vector square[4];
      for (int i = 0; i < 4; ++i) square[i] = Words::Load(words + (row + i) * stride + 4 * line);
      Transpose(square);
      for (int i = 0; i < 4; ++i) {
        Words::Store(square[i] ^ flip, codes + 4 * (kPanelRows * (line + i) + row));
      }
    }
  }
}

// Types of 32 weights a block, which is d (and m), maybe a word of fifth bits, and codes of 8 or 4
// bits: a word of the block is a word of the panel, except that bytes are biased there.
template <int kWords, int kHalves, bool kFifthBits = false>
void PackPlainPanel(const PanelFormat& format, const char* blocks, int64_t rows, int64_t cols,
                    uint8_t* codes, uint8_t* scales) {
  constexpr uint32_t kBias = kWords == 8 ? 0x80808080u : 0;
  constexpr int64_t kHeadBytes = 2 * kHalves + (kFifthBits ? 4 : 0);
  constexpr int64_t kBlockBytes = kHeadBytes + 4 * kWords;
  const int64_t num_blocks = cols / 32, row_bytes = num_blocks * kBlockBytes;
  for (int64_t b = 0; b < num_blocks; ++b) {
    const char* first = blocks + b * kBlockBytes;
    if (rows == kPanelRows) PackLines<kWords>(first + kHeadBytes, row_bytes, kBias, codes);
    for (int64_t row = 0; row < rows; ++row) {
      const char* block = first + row * row_bytes;
      for (int half = 0; half < kHalves; ++half) {
        std::memcpy(scales + half * kHalfBytes + 2 * row, block + 2 * half, 2);
      }
      if constexpr (kFifthBits) {
        uint32_t bits;
        std::memcpy(&bits, block + 2 * kHalves, sizeof(bits));
        const uint32_t word = SpreadFifthBits(bits);
        std::memcpy(codes + 4 * (kPanelRows * kWords + row), &word, 4);
      }
      if (rows == kPanelRows) continue;
      uint32_t words[kWords];
      std::memcpy(words, block + kHeadBytes, sizeof(words));
      for (int i = 0; i < kWords; ++i) {
        const uint32_t word = words[i] ^ kBias;
        std::memcpy(codes + 4 * (kPanelRows * i + row), &word, 4);
      }
    }
    codes += format.code_step;
    scales += format.scale_step;
  }
}

// One plane of a row's 32 codes, which lie in byte i from bit `shift` on: words of four bytes, of
// each line the row's own.
template <int kBits>
void PackRowPlane(const uint8_t* bytes, int shift, uint8_t* out) {
  constexpr uint32_t kMask = ((1u << kBits) - 1) * 0x01010101u;
  if constexpr (kBits == 4) {  // what K types have most of: four lines at once
    typedef uint32_t Words __attribute__((vector_size(16)));
    Words first, second;
    std::memcpy(&first, bytes, sizeof(first));
    std::memcpy(&second, bytes + sizeof(first), sizeof(second));
    const Words lines = ((first >> shift) & kMask) | ((second >> shift) & kMask) << kBits;
    for (int line = 0; line < 4; ++line) {
      const uint32_t word = lines[line];
      std::memcpy(out + 64 * line, &word, sizeof(word));
    }
    return;
  }
  uint32_t words[kGroups];
  std::memcpy(words, bytes, sizeof(words));
  for (int line = 0; line < kBits; ++line) {
    uint32_t word = 0;
    for (int group = line; group < kGroups; group += kBits) {
      word |= ((words[group] >> shift) & kMask) << (kBits * (group / kBits));
    }
    std::memcpy(out + 64 * line, &word, sizeof(word));
  }
}

int64_t RoundUpToLine(int64_t bytes) { return (bytes + 63) / 64 * 64; }

void StoreHalf(uint16_t bits, int row, uint8_t* out) { std::memcpy(out + 2 * row, &bits, 2); }

float ReadHalf(int row, const uint8_t* in) {
  uint16_t bits;
  std::memcpy(&bits, in + 2 * row, 2);
  return HalfToFloat(bits);
}

// Types of 256 weights a block: of each row one block after the other, its eight parts to as many
// blocks of the panel.
template <DType kType, int kLowBits, int kHighBits>
void PackGroupPanel(const PanelFormat& format, const char* blocks, int64_t rows, int64_t cols,
                    uint8_t* codes, uint8_t* scales) {
  constexpr int kParts = 8;
  const int64_t row_bytes = RowBytes(kType, cols), num_groups = cols / (32 * kParts);
  // Of `format` itself these would be read again after each byte that is stored.
  const int64_t code_step = format.code_step, scale_step = format.scale_step;
  const int64_t head_bytes = format.head_bytes, part_bytes = format.block_scale_bytes;
  const bool half_scales = format.half_scales;
  const int minima = format.minima;
  for (int64_t group = 0; group < num_groups; ++group) {
    for (int row = 0; row < rows; ++row) {
      const auto* block = reinterpret_cast<const uint8_t*>(blocks + row * row_bytes) +
                          group * (row_bytes / num_groups);
#pragma GCC unroll 8
      for (int part = 0; part < kParts; ++part) {
        uint8_t* to = codes + part * code_step + 4 * row;
        const CodePlanes planes = FindCodePlanes(kType, block, part);
        if constexpr (kType == DType::kIQ4_XS) {
          for (int i = 0; i < 4; ++i) std::memcpy(to + 64 * i, planes.nibbles + 4 * i, 4);
        } else {
          PackRowPlane<kLowBits>(planes.low, planes.low_shift, to);
        }
        if constexpr (kHighBits > 0) {
          PackRowPlane<kHighBits>(planes.high, planes.high_shift, to + 64 * kLowBits);
        }
        QuantizedBlock own;
        DecodeQuantizedScales(kType, block, part, &own);
        if (part == 0) StoreHalf(own.d_bits, row, scales);
        if (part == 0 && minima > 0) StoreHalf(own.m_bits, row, scales + kHalfBytes);
        uint8_t* first = scales + head_bytes + part * part_bytes + row;
        uint8_t* second = first + kPanelRows;
        if (minima == 2) {
          *first = static_cast<uint8_t>(own.scale[0] | (own.min[0] << 4));
          *second = static_cast<uint8_t>(own.scale[1] | (own.min[1] << 4));
          continue;
        }
        *first = static_cast<uint8_t>(own.scale[0]);
        if (half_scales) *second = static_cast<uint8_t>(own.scale[1]);
        if (minima == 1) *second = static_cast<uint8_t>(own.min[0]);
      }
    }
    codes += kParts * code_step;
    scales += scale_step;
  }
}

// MXFP4: its scales become BF16.
void PackMxfp4Panel(const PanelFormat& format, const char* blocks, int64_t rows, int64_t cols,
                    uint8_t* codes, uint8_t* scales) {
  const int64_t num_blocks = cols / 32, block_bytes = Traits(DType::kMXFP4).block_bytes;
  for (int64_t b = 0; b < num_blocks; ++b) {
    for (int row = 0; row < rows; ++row) {
      const char* block = blocks + (row * num_blocks + b) * block_bytes;
      StoreHalf(Mxfp4ScaleBits(static_cast<uint8_t>(block[0])), row, scales);
      for (int i = 0; i < 4; ++i) {
        std::memcpy(codes + 4 * (kPanelRows * i + row), block + 1 + 4 * i, 4);
      }
    }
    codes += format.code_step;
    scales += format.scale_step;
  }
}

// The types of gguf/coded_blocks.h.
template <int kLowBits, int kHighBits>
void PackCodedPanel(const PanelFormat& format, const char* blocks, int64_t rows, int64_t cols,
                    uint8_t* codes, uint8_t* scales) {
  const DTypeTraits& traits = Traits(format.dtype);
  const int64_t num_groups = cols / traits.block_size;
  for (int64_t group = 0; group < num_groups; ++group) {
    for (int row = 0; row < rows; ++row) {
      const auto* block = reinterpret_cast<const uint8_t*>(blocks) +
                          (row * num_groups + group) * traits.block_bytes;
      for (int part = 0; part < format.blocks_per_group; ++part) {
        CodedWeights own;
        DecodeCodedWeights(format.dtype, block, part, &own);
        uint8_t* to = codes + part * format.code_step + 4 * row;
        PackRowPlane<kLowBits>(own.codes, 0, to);
        if constexpr (kHighBits > 0) {
          PackRowPlane<kHighBits>(own.codes, kLowBits, to + 64 * kLowBits);
        }
        if (part == 0 && format.head_bytes > 0) StoreHalf(own.d_bits, row, scales);
        uint8_t* byte = scales + format.head_bytes + part * format.block_scale_bytes + row;
        for (int i = 0; i < format.block_scale_bytes / kPanelRows; ++i, byte += kPanelRows) {
          *byte = format.e4m3_scales ? Nvfp4ScaleBits(block, 2 * part + i)
                                     : static_cast<uint8_t>(own.scale[i]);
        }
      }
    }
    codes += format.blocks_per_group * format.code_step;
    scales += format.scale_step;
  }
}

using PackFunction = void (*)(const PanelFormat& format, const char* blocks, int64_t rows,
                              int64_t cols, uint8_t* codes, uint8_t* scales);

PackFunction FindPackFunction(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      return PackPlainPanel<4, 1>;
    case DType::kQ4_1:
      return PackPlainPanel<4, 2>;
    case DType::kQ5_0:
      return PackPlainPanel<4, 1, true>;
    case DType::kQ5_1:
      return PackPlainPanel<4, 2, true>;
    case DType::kQ2_K:
      return PackGroupPanel<DType::kQ2_K, 2, 0>;
    case DType::kQ3_K:
      return PackGroupPanel<DType::kQ3_K, 2, 1>;
    case DType::kQ4_K:
      return PackGroupPanel<DType::kQ4_K, 4, 0>;
    case DType::kQ5_K:
      return PackGroupPanel<DType::kQ5_K, 4, 1>;
    case DType::kQ6_K:
      return PackGroupPanel<DType::kQ6_K, 4, 2>;
    case DType::kIQ4_XS:
      return PackGroupPanel<DType::kIQ4_XS, 4, 0>;
    case DType::kMXFP4:
      return PackMxfp4Panel;
    case DType::kNVFP4:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
      return PackCodedPanel<4, 0>;
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ1_S:
    case DType::kIQ1_M:
      return PackCodedPanel<2, 1>;
    case DType::kTQ1_0:
    case DType::kTQ2_0:
    case DType::kQ2_0:
      return PackCodedPanel<2, 0>;
    case DType::kQ1_0:
      return PackCodedPanel<1, 0>;
    default:
      return PackPlainPanel<8, 1>;  // Q8_0
  }
}

}  // namespace

const PanelFormat& GetPanelFormat(DType dtype) {
  constexpr int kFirst = static_cast<int>(DType::kQ4_0);
  constexpr int kCount = kNumDTypes - kFirst;
  static const auto formats = [] {
    std::array<PanelFormat, kCount> all;
    for (int i = 0; i < kCount; ++i) all[i] = MakeFormat(static_cast<DType>(kFirst + i));
    return all;
  }();
  return formats[static_cast<int>(dtype) - kFirst];
}

int64_t PairCodeBytes(const PanelFormat& format, int64_t cols) {
  return cols / 32 * format.code_step;
}

int64_t PairScaleBytes(const PanelFormat& format, int64_t cols) {
  return RoundUpToLine(cols / (32 * format.blocks_per_group) * format.scale_step);
}

void PackPanel(const PanelFormat& format, const char* blocks, int64_t rows, int64_t cols,
               uint8_t* codes, uint8_t* scales) {
  FindPackFunction(format.dtype)(format, blocks, rows, cols, codes, scales);
}

void ReadPanelRow(const PanelFormat& format, const uint8_t* codes, const uint8_t* scales, int row,
                  int64_t cols, float* out) {
  const QuantizedTraits& traits = GetQuantizedTraits(format.dtype);
  for (int64_t b = 0; b < cols / 32; ++b) {
    const uint8_t* group = scales + b / format.blocks_per_group * format.scale_step;
    const uint8_t* own =
        group + format.head_bytes + b % format.blocks_per_group * format.block_scale_bytes;
    uint16_t d_bits = kHalfOne;
    if (format.head_bytes > 0) std::memcpy(&d_bits, group + 2 * row, 2);
    const float d = BlockScale(traits, d_bits);
    float m = format.minima > 0 ? ReadHalf(row, group + kHalfBytes) : 0;
    if (format.negate_m) m = -m;
    float scale[2] = {d, d};
    float min[2] = {m, m};
    for (int half = 0; half < 2 && format.block_scale_bytes > 0; ++half) {
      int byte = own[(format.half_scales ? half * kPanelRows : 0) + row];
      if (format.minima == 2) {
        scale[half] = d * static_cast<float>(byte & 15);
        min[half] = m * static_cast<float>(byte >> 4);
      } else if (format.e4m3_scales) {
        scale[half] = d * static_cast<float>(Nvfp4Scale(static_cast<uint8_t>(byte)));
      } else {
        scale[half] = d * static_cast<float>(static_cast<int8_t>(byte));
        if (format.minima == 1) min[half] = m * static_cast<float>(own[kPanelRows + row]);
      }
    }
    for (int i = 0; i < 32; ++i) {
      int code = ReadCode(format, row, i, codes);
      int q = format.table != nullptr ? format.table[code] : code - format.bias;
      float value = scale[i / 16] * static_cast<float>(q);
      out[i] = format.minima > 0 ? value + min[i / 16] : value;
    }
    codes += format.code_step;
    out += 32;
  }
}

}  // namespace lm
