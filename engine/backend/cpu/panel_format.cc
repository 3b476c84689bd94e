#include "engine/backend/cpu/panel_format.h"

#include <array>
#include <cstring>

#include "engine/backend/quantized_block.h"
#include "engine/base/float16.h"

namespace lm {
namespace {

constexpr int kHalfBytes = 2 * kPanelRows;  // 16 binary16 numbers

PanelFormat MakeFormat(DType dtype) {
  const QuantizedTraits& traits = GetQuantizedTraits(dtype);
  PanelFormat format = {};
  format.dtype = dtype;
  format.low_bits = traits.code_bits == 8 ? 8 : traits.code_bits >= 4 ? 4 : 2;
  format.high_bits = traits.code_bits - format.low_bits;
  format.bias = traits.table ? 128 : traits.offset;
  format.table = traits.table;
  format.signed_bytes = traits.table || traits.code_bits == 8;
  format.half_scales = traits.half_scales;
  format.minima = traits.minima;
  format.negate_m = traits.minima > 0 && traits.block_scales;
  format.blocks_per_group = Traits(dtype).block_size / 32;
  format.code_bytes = 32 * kPanelRows * traits.code_bits / 8;
  if (traits.block_scales) {
    int bytes_a_row = traits.half_scales ? 2 : 1 + traits.minima;
    format.block_scale_bytes = bytes_a_row * kPanelRows;
  }
  format.group_scale_bytes =
      kHalfBytes * (traits.minima > 0 ? 2 : 1) + format.block_scale_bytes * format.blocks_per_group;
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

// A byte's mask in each byte of a word.
uint64_t Everywhere(int mask) { return 0x0101010101010101u * static_cast<uint64_t>(mask); }

// One plane: (code >> drop) & mask of `bits` bits, of the eight groups' lines.
void PackPlane(const uint64_t (*lines)[8], int drop, int bits, uint8_t* out) {
  for (int line = 0; line < bits; ++line) {
    uint64_t words[8] = {};
    for (int group = line; group < kGroups; group += bits) {
      for (int i = 0; i < 8; ++i) {
        uint64_t field = (lines[group][i] >> drop) & Everywhere((1 << bits) - 1);
        words[i] |= field << (bits * (group / bits));
      }
    }
    std::memcpy(out + 64 * line, words, sizeof(words));
  }
}

// The codes of 32 values of 16 rows.
void PackCodes(const PanelFormat& format, const uint8_t (*rows)[32], uint8_t* codes) {
  uint64_t lines[kGroups][8];
  for (int group = 0; group < kGroups; ++group) {
    char* line = reinterpret_cast<char*>(lines[group]);
    for (int row = 0; row < kPanelRows; ++row) {
      std::memcpy(line + 4 * row, rows[row] + 4 * group, 4);
    }
  }
  if (format.low_bits == 8) {
    std::memcpy(codes, lines, sizeof(lines));
    return;
  }
  PackPlane(lines, 0, format.low_bits, codes);
  if (format.high_bits == 0) return;
  PackPlane(lines, format.low_bits, format.high_bits, codes + 64 * format.low_bits);
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

// Types whose GGUF block is d (and m) and codes of 8 or 4 bits, nothing else: a word of the block
// is a word of the panel, except that bytes are biased there.
bool IsPlain(const PanelFormat& format) {
  return format.block_scale_bytes == 0 && format.high_bits == 0;
}

template <int kWords, int kHalves>
void PackPlainPanel(const PanelFormat& format, const char* blocks, int64_t rows, int64_t cols,
                    uint8_t* codes, uint8_t* scales) {
  constexpr uint32_t kBias = kWords == 8 ? 0x80808080u : 0;
  constexpr int64_t kBlockBytes = 2 * kHalves + 4 * kWords;
  const int64_t num_blocks = cols / 32;
  for (int64_t b = 0; b < num_blocks; ++b) {
    for (int64_t row = 0; row < rows; ++row) {
      const char* block = blocks + (row * num_blocks + b) * kBlockBytes;
      for (int half = 0; half < kHalves; ++half) {
        std::memcpy(scales + half * kHalfBytes + 2 * row, block + 2 * half, 2);
      }
      uint32_t words[kWords];
      std::memcpy(words, block + 2 * kHalves, sizeof(words));
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

void PackRowPlanes(const PanelFormat& format, const CodePlanes& planes, int row, uint8_t* codes) {
  auto pack = [&](int bits, const uint8_t* bytes, int shift, uint8_t* plane) {
    auto pack_plane = bits == 4 ? PackRowPlane<4> : bits == 2 ? PackRowPlane<2> : PackRowPlane<1>;
    pack_plane(bytes, shift, plane + 4 * row);
  };
  pack(format.low_bits, planes.low, planes.low_shift, codes);
  if (planes.high == nullptr) return;
  pack(format.high_bits, planes.high, planes.high_shift, codes + 64 * format.low_bits);
}

int64_t RoundUpToLine(int64_t bytes) { return (bytes + 63) / 64 * 64; }

void StoreHalf(uint16_t bits, int row, uint8_t* out) { std::memcpy(out + 2 * row, &bits, 2); }

float ReadHalf(int row, const uint8_t* in) {
  uint16_t bits;
  std::memcpy(&bits, in + 2 * row, 2);
  return HalfToFloat(bits);
}

}  // namespace

const PanelFormat& GetPanelFormat(DType dtype) {
  constexpr int kFirst = static_cast<int>(DType::kQ4_0);
  constexpr int kCount = static_cast<int>(DType::kIQ4_XS) - kFirst + 1;
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
  if (IsPlain(format)) {
    auto pack = format.low_bits == 8 ? PackPlainPanel<8, 1>
                : format.minima > 0  ? PackPlainPanel<4, 2>
                                     : PackPlainPanel<4, 1>;
    return pack(format, blocks, rows, cols, codes, scales);
  }
  int64_t row_bytes = RowBytes(format.dtype, cols);
  int head_bytes = format.minima > 0 ? 2 * kHalfBytes : kHalfBytes;
  const bool in_planes = FindCodePlanes(format.dtype, blocks, 0).low != nullptr;
  uint8_t row_codes[kPanelRows][32] = {};
  for (int64_t b = 0; b < cols / 32; ++b) {
    uint8_t* group = scales + b / format.blocks_per_group * format.scale_step;
    uint8_t* own = group + head_bytes + b % format.blocks_per_group * format.block_scale_bytes;
    CodePlanes planes = FindCodePlanes(format.dtype, blocks, b);  // of the first row
    for (int row = 0; row < rows; ++row) {
      QuantizedBlock block;
      const char* from = blocks + row * row_bytes;
      if (in_planes) {
        DecodeQuantizedScales(format.dtype, from, b, &block);
        PackRowPlanes(format, planes, row, codes);
        planes.low += row_bytes;
        if (planes.high != nullptr) planes.high += row_bytes;
      } else {
        DecodeQuantizedBlock(format.dtype, from, b, &block);
        std::memcpy(row_codes[row], block.codes, sizeof(block.codes));
      }
      StoreHalf(block.d_bits, row, group);
      if (format.minima > 0) StoreHalf(block.m_bits, row, group + kHalfBytes);
      if (format.block_scale_bytes == 0) continue;
      if (format.minima == 2) {
        own[row] = static_cast<uint8_t>(block.scale[0] | (block.min[0] << 4));
        own[kPanelRows + row] = static_cast<uint8_t>(block.scale[1] | (block.min[1] << 4));
        continue;
      }
      own[row] = static_cast<uint8_t>(block.scale[0]);
      if (format.half_scales) own[kPanelRows + row] = static_cast<uint8_t>(block.scale[1]);
      if (format.minima == 1) own[kPanelRows + row] = static_cast<uint8_t>(block.min[0]);
    }
    if (!in_planes) PackCodes(format, row_codes, codes);
    codes += format.code_step;
  }
}

void ReadPanelRow(const PanelFormat& format, const uint8_t* codes, const uint8_t* scales, int row,
                  int64_t cols, float* out) {
  int head_bytes = format.minima > 0 ? 2 * kHalfBytes : kHalfBytes;
  for (int64_t b = 0; b < cols / 32; ++b) {
    const uint8_t* group = scales + b / format.blocks_per_group * format.scale_step;
    const uint8_t* own =
        group + head_bytes + b % format.blocks_per_group * format.block_scale_bytes;
    float d = ReadHalf(row, group);
    float m = format.minima > 0 ? ReadHalf(row, group + kHalfBytes) : 0;
    if (format.negate_m) m = -m;
    float scale[2] = {d, d};
    float min[2] = {m, m};
    for (int half = 0; half < 2 && format.block_scale_bytes > 0; ++half) {
      int byte = own[(format.half_scales ? half * kPanelRows : 0) + row];
      if (format.minima == 2) {
        scale[half] = d * static_cast<float>(byte & 15);
        min[half] = m * static_cast<float>(byte >> 4);
      } else {
        scale[half] = d * static_cast<float>(static_cast<int8_t>(byte));
        if (format.minima == 1) min[half] = m * static_cast<float>(own[kPanelRows + row]);
      }
    }
    for (int i = 0; i < 32; ++i) {
      int code = ReadCode(format, row, i, codes);
      int q = format.table ? kIq4Values[code] : code - format.bias;
      float value = scale[i / 16] * static_cast<float>(q);
      out[i] = format.minima > 0 ? value + min[i / 16] : value;
    }
    codes += format.code_step;
    out += 32;
  }
}

}  // namespace lm
