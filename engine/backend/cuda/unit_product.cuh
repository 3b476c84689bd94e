// A unit of weights times units of input: what both kernels of products are made of.
//
// The order of a sum (NumericContract::kRowInvariant): K is cut into kSlices runs of units, each
// summed in ascending order from 0, of quantised weights block by block as numeric_contract.h says,
// of 16-bit ones 16 columns at a time as the tensor cores add them; then the slices are added in
// ascending order. So it is the same for every T.
#ifndef LM_ENGINE_BACKEND_CUDA_UNIT_PRODUCT_H_
#define LM_ENGINE_BACKEND_CUDA_UNIT_PRODUCT_H_

#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/packed_input.cuh"
#include "engine/backend/cuda/packed_weights.cuh"
#include "engine/backend/cuda/warp_matrix.cuh"

namespace lm::cuda {

constexpr int kSlices = 8;

// Units a slice has; the last ones have fewer, or none.
LM_HOST_DEVICE int64_t SliceUnits(int64_t units) { return (units + kSlices - 1) / kSlices; }

// Blocks of a unit; of 16-bit weights, 16 columns each.
template <DType kType>
inline constexpr int kUnitBlocks = kPackedFormat<kType>.quantised() ? 2 : 4;

// A lane's codes of a unit, as they lie in memory.
template <DType kType>
struct UnitCodes {
  static constexpr PackedFormat kFormat = kPackedFormat<kType>;
  static constexpr int kPieces = kFormat.code_bytes() / 512;
  uint4 pieces[kPieces];
  uint2 high;

  // `load` reads 8 or 16 bytes. Of 16-bit weights it can be the first half, then for Fragment(0),
  // (1).
  template <int kShare = 1, typename Load>
  __device__ __forceinline__ void Read(const char* codes, const char* upper, int lane, Load load) {
#pragma unroll
    for (int i = 0; i < kPieces / kShare; ++i) {
      pieces[i] = load(reinterpret_cast<const uint4*>(codes + i * 512) + lane);
    }
    if constexpr (kFormat.high_bytes() > 0) {
      high = load(reinterpret_cast<const uint2*>(upper) + lane);
    }
  }

  // The same, as far as Fragment(b) needs it.
  template <typename Load>
  __device__ __forceinline__ void ReadFor(int b, const char* codes, const char* upper, int lane,
                                          Load load) {
    if constexpr (kPieces > 1) {
      pieces[b] = load(reinterpret_cast<const uint4*>(codes + b * 512) + lane);
    } else {
      Read(codes, upper, lane, load);
    }
  }

  // The fragment of block b, or for 16-bit weights of the columns [16 b, 16 b + 16).
  __device__ __forceinline__ void Fragment(int b, uint32_t (&a)[4]) const {
    if constexpr (kPieces > 1) {
      const uint4& piece = pieces[b];
      a[0] = piece.x;
      a[1] = piece.y;
      a[2] = piece.z;
      a[3] = piece.w;
    } else {
      const uint32_t words[2] = {b == 0 ? pieces[0].x : pieces[0].z,
                                 b == 0 ? pieces[0].y : pieces[0].w};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t word = words[half];
        uint32_t& first = a[2 * half];
        uint32_t& second = a[2 * half + 1];
        if constexpr (kFormat.codes == Codes::kSigned4) {
          first = word << 4 & 0xf0f0f0f0u;
          second = word & 0xf0f0f0f0u;
        } else if constexpr (kFormat.codes == Codes::kUnsigned4) {
          first = word & 0x0f0f0f0fu;
          second = word >> 4 & 0x0f0f0f0fu;
        } else if constexpr (kFormat.codes == Codes::kTable4) {
          first = LookUp(word);
          second = LookUp(word >> 16);
        } else {
          const uint32_t upper = b == 0 ? high.x : high.y;
          first = (word << 2 & 0x3c3c3c3cu) | (upper << (6 - 4 * half) & 0xc0c0c0c0u);
          second = (word >> 2 & 0x3c3c3c3cu) | ((half == 0 ? upper << 4 : upper) & 0xc0c0c0c0u);
        }
      }
    }
  }

 private:
  // What the four codes in the low 16 bits stand for.
  static __device__ __forceinline__ uint32_t LookUp(uint32_t codes) {
    constexpr CodeTable kTable = kCodeTable<kType>;
    const uint32_t places = codes & 0x7777u;
    const uint32_t low = ChooseBytes(static_cast<uint32_t>(kTable.low),
                                     static_cast<uint32_t>(kTable.low >> 32), places);
    const uint32_t high = ChooseBytes(static_cast<uint32_t>(kTable.high),
                                      static_cast<uint32_t>(kTable.high >> 32), places);
    return ChooseBytes(low, high, 0x3210u | (codes & 0x8888u) >> 1);
  }
};

// A lane's scales of a unit, as they lie in memory: its rows' record, and their supers.
template <DType kType>
struct UnitScales {
  static constexpr PackedFormat kFormat = kPackedFormat<kType>;
  static constexpr int kWords = kFormat.record() / 4;
  alignas(8) uint32_t record[kWords > 0 ? kWords : 1];
  alignas(8) uint32_t super[2];

  __device__ __forceinline__ void Read(const char* from, const char* supers) {
    const auto* words = reinterpret_cast<const uint32_t*>(from);
    if constexpr (kWords % 2 == 0) {
#pragma unroll
      for (int i = 0; i < kWords; i += 2) {
        const uint2 two = reinterpret_cast<const uint2*>(from)[i / 2];
        record[i] = two.x;
        record[i + 1] = two.y;
      }
    } else {
      record[0] = words[0];
    }
    if constexpr (kFormat.supers()) {
      const uint2 two = *reinterpret_cast<const uint2*>(supers);
      super[0] = two.x;
      super[1] = two.y;
    }
  }

  // Of block b.
  __device__ __forceinline__ BlockScales Load(int b) const {
    return LoadBlockScales<kType>(reinterpret_cast<const char*>(record),
                                  reinterpret_cast<const char*>(super), b);
  }
};

// A lane's part of a block of the tile's unit: the fragment, and the scales of two tokens.
// (16-bit: of 16 columns, in up to two parts.)
template <DType kType>
struct BlockInput {
  static constexpr PackedFormat kFormat = kPackedFormat<kType>;
  static constexpr int kParts = InputParts(kFormat);
  uint2 b[kParts];
  float2 s, sums, firsts;

  // Block (16 columns) number i. Of several parts one is kPartBytes behind the other.
  template <int kPartBytes = 1024>
  __device__ __forceinline__ void Read(const char* unit, int lane, int i) {
    if constexpr (kFormat.quantised()) {
      b[0] = reinterpret_cast<const uint2*>(unit)[32 * i + lane];
      const auto* scales = reinterpret_cast<const float2*>(unit + kInputScales) + lane % 4 + 4 * i;
      s = scales[0];
      if constexpr (kFormat.minima) sums = scales[8];
      if constexpr (kFormat.minima && kFormat.halves()) firsts = scales[16];
    } else {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        b[part] = reinterpret_cast<const uint2*>(unit + part * kPartBytes + i * 256)[lane];
      }
    }
  }
};

// 2^23 + 2^22: an integer below 2^22 in magnitude added to its bits, taken as a float, is the
// integer added to it. So the sums of the tensor cores need no conversion.
constexpr int32_t kIntegerBits = 0x4b400000;
constexpr float kIntegerFloat = 12582912.0f;
__device__ __forceinline__ float IntegerOf(int32_t bits) {
  return BitsToFloat(static_cast<uint32_t>(bits)) - kIntegerFloat;
}

// acc += a block of the unit times the tile's; acc as a fragment C, of which of each pair of
// columns only the first may be wanted.
template <DType kType, int kColumns = 2>
__device__ __forceinline__ void AddBlock(const uint32_t (&a)[4], const BlockScales& scales,
                                         const BlockInput<kType>& x, float (&acc)[4]) {
  constexpr PackedFormat kFormat = kPackedFormat<kType>;
  const uint32_t b0 = x.b[0].x, b1 = x.b[0].y;
  int32_t sums[4], others[4] = {};
  if constexpr (kFormat.halves()) {
    MultiplyInt8Half(a[0], a[1], b0, kIntegerBits, sums);
    MultiplyInt8Half(a[2], a[3], b1, kIntegerBits, others);
  } else {
    MultiplyInt8(a, b0, b1, kIntegerBits, sums);
  }
#pragma unroll
  for (int i = 0; i < 4; i += 3 - kColumns) {
    const int row = i / 2;
    const float s = i % 2 == 0 ? x.s.x : x.s.y;
    float sum = IntegerOf(sums[i]);
    if constexpr (kFormat.halves()) {
      sum = scales.half[0][row] * sum + scales.half[1][row] * IntegerOf(others[i]);
    }
    acc[i] = fmaf(sum, scales.d[row] * s, acc[i]);
    if constexpr (kFormat.minima) {
      const float all = i % 2 == 0 ? x.sums.x : x.sums.y;
      if constexpr (kFormat.halves()) {
        const float first = i % 2 == 0 ? x.firsts.x : x.firsts.y;
        acc[i] = fmaf(scales.m[0][row], s * first, acc[i]);
        acc[i] = fmaf(scales.m[1][row], s * (all - first), acc[i]);
      } else {
        acc[i] = fmaf(scales.m[0][row], s * all, acc[i]);
      }
    }
  }
}

// acc += 16 columns of 16-bit weights.
template <DType kType>
__device__ __forceinline__ void AddSixteen(const uint32_t (&a)[4], const BlockInput<kType>& x,
                                           float (&acc)[4]) {
  constexpr bool kIsBf16 = kType == DType::kBF16;
  // What was lost first, then the greater part.
#pragma unroll
  for (int part = BlockInput<kType>::kParts - 1; part >= 0; --part) {
    Multiply16<kIsBf16>(a, x.b[part].x, x.b[part].y, acc);
  }
}

// Where a product goes.
struct ProductOutput {
  Matrix out;
  const float* bias;  // or null
  bool adds;

  // Of a token and a row of W.
  __device__ __forceinline__ void Store(const PackedWeights& w, const PackedInput& x, int64_t token,
                                        int64_t row, float sum) const {
    if (x.inverse_factors != nullptr) sum *= x.inverse_factors[token];
    if (w.row_scales != nullptr) sum *= w.row_scales[row];
    if (bias != nullptr) sum += bias[row];
    float& to = out.data[token * out.stride + row];
    to = adds ? to + sum : sum;
  }
};

// Makes what the sums of one group of slots need of what all have: its expert's matrix and its part
// of the input. False where the group is empty.
template <DType kType>
__device__ __forceinline__ bool TakeInput(const ExpertProducts& experts, int64_t group,
                                          PackedWeights* w, PackedInput* x) {
  const SlotGroup slots = experts.groups[group];
  if (slots.count == 0) return false;
  w->data = experts.matrices[slots.expert].data;
  x->data = x->unit<kType>(group * (experts.group_slots / kTileTokens), 0);
  x->tokens = slots.count;
  return true;
}

// The same of what they are stored with. (Looked up again where sums of many tokens need the
// registers until then.)
__device__ __forceinline__ void TakeOutput(const ExpertProducts& experts, int64_t group,
                                           PackedWeights* w, PackedInput* x, ProductOutput* to) {
  const SlotGroup slots = experts.groups[group];
  const ExpertMatrix matrix = experts.matrices[slots.expert];
  w->row_scales = matrix.row_scales;
  if (x->inverse_factors != nullptr) x->inverse_factors += group * experts.group_slots;
  x->tokens = slots.count;
  to->out.data += slots.first * to->out.stride;
  to->bias = matrix.bias;
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_UNIT_PRODUCT_H_
