// A weight matrix as the kernels of products read it: in the order of the tensor cores' fragments
// (warp_matrix.cuh), so that a warp's every read is one run of bytes.
//
// A unit is 16 rows and 64 columns, two blocks of 32; what W has no rows or columns for is zeros.
// The units of 16 rows (a panel) stand side by side, panel after panel, in up to four planes:
//
//   codes   kInt8 1024 bytes a unit: of each block, 16 a lane: a[0] .. a[3]
//           k4 512: 16 a lane, a word for each half of each block: byte j of a[0] in the low half
//           of
//             byte j, that of a[1] in the high half. Of kTable4 the low 16 bits are a[0]'s four
//             codes in order, the high ones a[1]'s
//           kInt6 512 as those have the lower four bits, and in `high` 256: 8 a lane, a word a
//           block:
//             bits 2r, 2r + 1 of byte j are the upper bits of byte j of a[r]
//           k16 2048: of each 16 columns, 16 a lane: a[0] .. a[3]
//   scales  one record for each g, of its rows g and g + 8 (below), all minima behind all scales
//   supers  one for each g and 256 columns: d and m of row g, then of g + 8, as binary16
//
// The values are exactly the file's.
#ifndef LM_ENGINE_BACKEND_CUDA_PACKED_WEIGHTS_H_
#define LM_ENGINE_BACKEND_CUDA_PACKED_WEIGHTS_H_

#include "engine/backend/cuda/host_device.cuh"
#include "engine/backend/cuda/weight_block.cuh"
#include "engine/tensor/dtype.h"

namespace lm::cuda {

inline constexpr int kPanelRows = 16;
inline constexpr int kUnitCols = 64;
inline constexpr int kUnitsOfSuper = 4;

enum class Codes {
  kInt8,
  kSigned4,    // -8 .. 7
  kUnsigned4,  // 0 .. 15
  kTable4,     // of 16 values
  kInt6,       // -32 .. 31
  kHalf,
  kBf16,
};

enum class ScaleKind {
  kNone,
  kHalf,    // record: [row 2][block 2] binary16
  kBf16,    // likewise
  kSuper,   // [row 2][block 2] int8, times the super's
  kHalves,  // [row 2][block 2][half 2] int8, times the super's
  kFloat,   // [row 2][block 2] of d and the scales of both halves, F32
};

struct PackedFormat {
  Codes codes;
  ScaleKind scales;
  bool minima = false;

  constexpr bool quantised() const { return codes != Codes::kHalf && codes != Codes::kBf16; }
  constexpr bool halves() const {
    return scales == ScaleKind::kHalves || scales == ScaleKind::kFloat;
  }
  constexpr bool supers() const {
    return scales == ScaleKind::kSuper || scales == ScaleKind::kHalves;
  }
  // Bytes a unit.
  constexpr int code_bytes() const {
    return !quantised() ? 2048 : codes == Codes::kInt8 ? 1024 : 512;
  }
  constexpr int high_bytes() const { return codes == Codes::kInt6 ? 256 : 0; }
  // Bytes a record, of scales or of minima, and of both.
  constexpr int scale_record() const {
    switch (scales) {
      case ScaleKind::kNone:
        return 0;
      case ScaleKind::kSuper:
        return 4;
      case ScaleKind::kFloat:
        return 48;
      default:
        return 8;
    }
  }
  constexpr int record() const { return scale_record() * (minima ? 2 : 1); }
  constexpr int scale_bytes() const { return 8 * record(); }
  constexpr int super_bytes() const { return supers() ? 64 : 0; }
  // What a byte of A is, of a code's value.
  constexpr float code_unit() const {
    return codes == Codes::kSigned4 ? 0.0625f : codes == Codes::kInt6 ? 0.25f : 1.0f;
  }
};

template <DType kType>
inline constexpr PackedFormat kPackedFormat{};
template <>
inline constexpr PackedFormat kPackedFormat<DType::kQ4_0>{Codes::kSigned4, ScaleKind::kHalf};
template <>
inline constexpr PackedFormat kPackedFormat<DType::kQ4_1>{Codes::kUnsigned4, ScaleKind::kHalf,
                                                          true};
template <>
inline constexpr PackedFormat kPackedFormat<DType::kQ5_0>{Codes::kInt6, ScaleKind::kHalf};
template <>
inline constexpr PackedFormat kPackedFormat<DType::kQ5_1>{Codes::kInt6, ScaleKind::kHalf, true};
template <>
inline constexpr PackedFormat kPackedFormat<DType::kQ8_0>{Codes::kInt8, ScaleKind::kHalf};
template <>
inline constexpr PackedFormat kPackedFormat<DType::kQ2_K>{Codes::kUnsigned4, ScaleKind::kHalves,
                                                          true};
template <>
inline constexpr PackedFormat kPackedFormat<DType::kQ3_K>{Codes::kSigned4, ScaleKind::kHalves};
template <>
inline constexpr PackedFormat kPackedFormat<DType::kQ4_K>{Codes::kUnsigned4, ScaleKind::kSuper,
                                                          true};
template <>
inline constexpr PackedFormat kPackedFormat<DType::kQ5_K>{Codes::kInt6, ScaleKind::kSuper, true};
template <>
inline constexpr PackedFormat kPackedFormat<DType::kQ6_K>{Codes::kInt6, ScaleKind::kHalves};
template <>
inline constexpr PackedFormat kPackedFormat<DType::kIQ4_NL>{Codes::kTable4, ScaleKind::kHalf};
template <>
inline constexpr PackedFormat kPackedFormat<DType::kIQ4_XS>{Codes::kTable4, ScaleKind::kSuper};
template <>
inline constexpr PackedFormat kPackedFormat<DType::kMXFP4>{Codes::kTable4, ScaleKind::kBf16};
template <>
inline constexpr PackedFormat kPackedFormat<kExpanded>{Codes::kInt8, ScaleKind::kFloat};
template <>
inline constexpr PackedFormat kPackedFormat<DType::kF16>{Codes::kHalf, ScaleKind::kNone};
template <>
inline constexpr PackedFormat kPackedFormat<DType::kBF16>{Codes::kBf16, ScaleKind::kNone};

// The 16 values of a type with a table, a byte each.
struct CodeTable {
  uint64_t low, high;
};
template <DType kType>
inline constexpr CodeTable kCodeTable =
    kType == DType::kMXFP4 ? CodeTable{kMxfp4Low, kMxfp4High} : CodeTable{kIq4Low, kIq4High};

// How many units, and where the planes begin.
struct PackedShape {
  int64_t panels, units;  // units of a panel
  int64_t high, scales, supers, bytes;

  LM_HOST_DEVICE int64_t Unit(int64_t panel, int64_t unit) const { return panel * units + unit; }
  static PackedShape Of(const PackedFormat& format, int64_t rows, int64_t cols) {
    PackedShape shape;
    shape.panels = (rows + kPanelRows - 1) / kPanelRows;
    shape.units = (cols + kUnitCols - 1) / kUnitCols;
    const int64_t all = shape.panels * shape.units;
    shape.high = all * format.code_bytes();
    shape.scales = shape.high + all * format.high_bytes();
    shape.supers = shape.scales + all * format.scale_bytes();
    shape.bytes = shape.supers + shape.panels *
                                     ((shape.units + kUnitsOfSuper - 1) / kUnitsOfSuper) *
                                     format.super_bytes();
    return shape;
  }
};

// W (rows, cols), packed.
struct PackedWeights {
  const char* data;
  PackedShape shape;
  int64_t rows;
  int64_t cols;
  const float* row_scales;  // see WeightMatrix (backend.h); or null

  template <DType kType>
  LM_HOST_DEVICE const char* codes(int64_t unit) const {
    return data + unit * kPackedFormat<kType>.code_bytes();
  }
  template <DType kType>
  LM_HOST_DEVICE const char* high(int64_t unit) const {
    return data + shape.high + unit * kPackedFormat<kType>.high_bytes();
  }
  template <DType kType>
  LM_HOST_DEVICE const char* scales(int64_t unit) const {
    return data + shape.scales + unit * kPackedFormat<kType>.scale_bytes();
  }
  // Of a unit of a panel, by its number there.
  LM_HOST_DEVICE const char* supers(int64_t panel, int64_t unit) const {
    const int64_t of_panel = (shape.units + kUnitsOfSuper - 1) / kUnitsOfSuper;
    return data + shape.supers + (panel * of_panel + unit / kUnitsOfSuper) * 64;
  }
};

// A block's scales of the rows g and g + 8 ([row]), as products use them.
struct BlockScales {
  float d[2];        // with the block's scale, and the code's unit
  float half[2][2];  // [half][row]: the scales of both halves, where they have their own
  float m[2][2];     // [half][row]: the minima; without halves, half 0
};

// Block b (0, 1) of a unit; `record` is that of g, `super` its supers'.
template <DType kType>
LM_HOST_DEVICE BlockScales LoadBlockScales(const char* record, const char* super, int b) {
  constexpr PackedFormat kFormat = kPackedFormat<kType>;
  constexpr float kUnit = kFormat.code_unit();
  BlockScales out;
  const char* minima = record + kFormat.scale_record();
  for (int row = 0; row < 2; ++row) {
    const int at = 2 * row + b;
    if constexpr (kFormat.scales == ScaleKind::kHalf || kFormat.scales == ScaleKind::kBf16) {
      const uint16_t d = reinterpret_cast<const uint16_t*>(record)[at];
      out.d[row] = (kFormat.scales == ScaleKind::kBf16 ? LoadBf16(d) : LoadF16(d)) * kUnit;
      if constexpr (kFormat.minima) {
        out.m[0][row] = LoadF16(reinterpret_cast<const uint16_t*>(minima)[at]);
      }
    } else if constexpr (kFormat.scales == ScaleKind::kFloat) {
      const float* three = reinterpret_cast<const float*>(record) + 3 * at;
      out.d[row] = three[0];
      out.half[0][row] = three[1];
      out.half[1][row] = three[2];
    } else {
      const uint16_t* dm = reinterpret_cast<const uint16_t*>(super) + 2 * row;
      const auto* scale = reinterpret_cast<const int8_t*>(record);
      const auto* min = reinterpret_cast<const int8_t*>(minima);
      const float d = LoadF16(dm[0]) * kUnit;
      const float m = kFormat.minima ? LoadF16(dm[1]) : 0.0f;
      if constexpr (kFormat.scales == ScaleKind::kSuper) {
        out.d[row] = d * static_cast<float>(scale[at]);
        if constexpr (kFormat.minima) out.m[0][row] = m * static_cast<float>(min[at]);
      } else {
        out.d[row] = d;
        for (int half = 0; half < 2; ++half) {
          out.half[half][row] = static_cast<float>(scale[2 * at + half]);
          if constexpr (kFormat.minima) {
            out.m[half][row] = m * static_cast<float>(min[2 * at + half]);
          }
        }
      }
    }
  }
  return out;
}

// The code of a row's column as W's planes have it, in units of code_unit().
template <DType kType>
LM_HOST_DEVICE int PackedCode(const PackedWeights& w, int64_t unit, int row, int col) {
  constexpr PackedFormat kFormat = kPackedFormat<kType>;
  const int hi = row / 8, b = col / 32, k = col % 32;
  const int lane = row % 8 * 4 + k % 16 / 4, j = k % 4;
  const auto* codes = reinterpret_cast<const uint8_t*>(w.codes<kType>(unit));
  if constexpr (kFormat.codes == Codes::kInt8) {
    return static_cast<int8_t>(codes[b * 512 + lane * 16 + (k / 16 * 2 + hi) * 4 + j]);
  } else {
    const uint8_t* word = codes + lane * 16 + (b * 2 + k / 16) * 4;
    if constexpr (kFormat.codes == Codes::kTable4) {
      const int code = (word[hi * 2 + j / 2] >> (j % 2 * 4)) & 15;
      const uint64_t table = code < 8 ? kCodeTable<kType>.low : kCodeTable<kType>.high;
      return static_cast<int8_t>(table >> (code % 8 * 8));
    }
    const int low = (word[j] >> (hi * 4)) & 15;
    if constexpr (kFormat.codes == Codes::kUnsigned4) return low;
    if constexpr (kFormat.codes == Codes::kSigned4) return static_cast<int8_t>(low << 4);
    const auto* high = reinterpret_cast<const uint8_t*>(w.high<kType>(unit));
    const int two = (high[lane * 8 + b * 4 + j] >> (2 * (k / 16 * 2 + hi))) & 3;
    return static_cast<int8_t>(low << 2 | two << 6);
  }
}

// W[row, col], the bits of DequantizeRow (gguf/block_format.h).
template <DType kType>
LM_HOST_DEVICE float PackedValue(const PackedWeights& w, int64_t row, int64_t col) {
  constexpr PackedFormat kFormat = kPackedFormat<kType>;
  const int64_t panel = row / kPanelRows, of_panel = col / kUnitCols;
  const int64_t unit = w.shape.Unit(panel, of_panel);
  const int r = static_cast<int>(row % kPanelRows), c = static_cast<int>(col % kUnitCols);
  if constexpr (!kFormat.quantised()) {
    const int k = c % 16;
    const int lane = r % 8 * 4 + k % 8 / 2, reg = k / 8 * 2 + r / 8;
    const auto* codes = reinterpret_cast<const uint16_t*>(w.codes<kType>(unit));
    const uint16_t bits = codes[c / 16 * 256 + lane * 8 + reg * 2 + k % 2];
    return kFormat.codes == Codes::kBf16 ? LoadBf16(bits) : LoadF16(bits);
  } else {
    const int g = r % 8, half = c % 32 / 16, hi = r / 8;
    const char* super = kFormat.supers() ? w.supers(panel, of_panel) + g * 8 : nullptr;
    const BlockScales scales =
        LoadBlockScales<kType>(w.scales<kType>(unit) + g * kFormat.record(), super, c / 32);
    const float code = static_cast<float>(PackedCode<kType>(w, unit, r, c));
    float value =
        kFormat.halves() ? scales.d[hi] * scales.half[half][hi] * code : scales.d[hi] * code;
    if constexpr (kFormat.minima) value += scales.m[kFormat.halves() ? half : 0][hi];
    return value;
  }
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_PACKED_WEIGHTS_H_
