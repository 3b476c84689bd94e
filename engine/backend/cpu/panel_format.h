// How the CPU keeps quantised weights: sixteen rows side by side, so that the lanes of a vector are
// output columns and a block's int32 sums need no reduction.
//
// A panel holds 16 rows. Two neighbouring panels are a pair, whose blocks alternate in memory, so
// that a product of 32 columns reads two streams front to back:
//   codes:  per block of 32 values, bit planes of 64-byte lines. Byte 4 r + j of a line belongs to
//           row r; a code's value index is 4 g + j with g in [0, 8) its group.
//             8 bits: line g is group g.
//             4 bits: line g % 4, low half for g < 4, high half above.
//             2 bits: line g % 2, at bit 2 (g / 2).
//             1 bit:  one line, at bit g.
//           3, 5 and 6 bits are 2 + 1, 4 + 1 and 4 + 2, the low bits' plane first.
//   scales: per GGUF block, d (and m) of the 16 rows as binary16, or d as BF16 (of NVFP4 none);
//   then
//           for types with integer scales, for each 32 values their scales and minima, one byte a
//           row. Q2_K's scale and minimum share a byte as in the file; NVFP4's scales have E4M3's
//           bits, 0 to 126.
#ifndef LM_ENGINE_BACKEND_CPU_PANEL_FORMAT_H_
#define LM_ENGINE_BACKEND_CPU_PANEL_FORMAT_H_

#include <cstdint>

#include "engine/tensor/dtype.h"

namespace lm {

inline constexpr int kPanelRows = 16;
inline constexpr int kPanelsAPair = 2;
inline constexpr int kGroups = 8;                            // groups of 4 values a block
inline constexpr int kUnpackedBlockBytes = 32 * kPanelRows;  // codes as bytes
// Of bytes with their signs apart (CpuKernels::split_codes).
inline constexpr int kSplitBlockBytes = 4 * kPanelRows + 2 * kUnpackedBlockBytes;

struct PanelFormat {
  DType dtype;
  int low_bits;         // of the first plane: 1, 2, 4 or 8
  int high_bits;        // of the second: 0, 1 or 2
  int bias;             // q_w = byte - bias, after the table where there is one
  const int8_t* table;  // what codes stand for, or null
  bool signed_bytes;    // bytes above 127 occur
  int most_code;        // of the bytes
  bool half_scales;
  bool bf16_scale;
  bool e4m3_scales;
  float unit;  // of d
  int minima;  // 0, 1 or 2 for each 32 values
  bool negate_m;
  int blocks_per_group;   // 32-value blocks that share d: 1, 2, 4 or 8
  int code_bytes;         // of a 32-value block
  int head_bytes;         // of a group: d and m
  int block_scale_bytes;  // of a 32-value block, beside them
  int group_scale_bytes;  // of a group, all included
  bool direct_scales;     // a product of few tokens takes them as they are here
  int unpacked_scales;    // floats a row and block: d, then two scales, then minima

  // Bytes from a panel's block or group to its next: the pair's other panel's lies between.
  int code_step;
  int scale_step;

  alignas(16) uint8_t biased_table[16];  // the table's values + bias
};

// REQUIRES: Traits(dtype).quantised.
const PanelFormat& GetPanelFormat(DType dtype);

// Bytes of a pair's streams for rows of `cols` values; each begins on a cache line.
int64_t PairCodeBytes(const PanelFormat& format, int64_t cols);
int64_t PairScaleBytes(const PanelFormat& format, int64_t cols);

// Lays out `rows` (at most 16) rows of GGUF blocks; the panel's other rows become zeros.
// codes and scales: where its first block and group lie. REQUIRES: they are zeroed where rows < 16.
void PackPanel(const PanelFormat& format, const char* blocks, int64_t rows, int64_t cols,
               uint8_t* codes, uint8_t* scales);

// Row `row` of a panel as floats, as DequantizeRow gives it.
void ReadPanelRow(const PanelFormat& format, const uint8_t* codes, const uint8_t* scales, int row,
                  int64_t cols, float* out);

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_PANEL_FORMAT_H_
