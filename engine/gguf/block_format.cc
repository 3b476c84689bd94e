#include "engine/gguf/block_format.h"

#include <cassert>
#include <cstring>

#include "engine/base/float16.h"
#include "engine/gguf/block_layout.h"
#include "engine/gguf/coded_blocks.h"

namespace lm {
namespace {

template <typename Decoder>
void DecodeBlocks(DType dtype, Decoder decode, const uint8_t* blocks, int64_t values, float* out) {
  const DTypeTraits& traits = Traits(dtype);
  assert(values % traits.block_size == 0);
  for (int64_t v = 0; v < values; v += traits.block_size) {
    decode(blocks, out + v);
    blocks += traits.block_bytes;
  }
}

void DecodeCoded(DType dtype, const uint8_t* block, float* out) {
  const int8_t* levels = CodeLevels(dtype);
  for (int part = 0; part < Traits(dtype).block_size / 32; ++part, out += 32) {
    CodedWeights coded;
    DecodeCodedWeights(dtype, block, part, &coded);
    const float d = CodeUnit(dtype) * HalfToFloat(coded.d_bits);
    for (int half = 0; half < 2; ++half) {
      const float scale = d * static_cast<float>(coded.scale[half]);
      for (int i = 16 * half; i < 16 * half + 16; ++i) {
        out[i] = scale * static_cast<float>(levels[coded.codes[i]]);
      }
    }
  }
}

}  // namespace

void DequantizeRow(DType dtype, const void* blocks, int64_t values, float* out) {
  const uint8_t* bytes = static_cast<const uint8_t*>(blocks);
  auto decode = [&](auto decoder) { DecodeBlocks(dtype, decoder, bytes, values, out); };
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, bytes, static_cast<size_t>(values) * sizeof(float));
      return;
    case DType::kF16:
      for (int64_t v = 0; v < values; ++v) out[v] = HalfToFloat(LoadU16(bytes + 2 * v));
      return;
    case DType::kBF16:
      for (int64_t v = 0; v < values; ++v) out[v] = Bf16ToFloat(LoadU16(bytes + 2 * v));
      return;
    case DType::kQ4_0:
      return decode(DecodeQ4_0);
    case DType::kQ4_1:
      return decode(DecodeQ4_1);
    case DType::kQ5_0:
      return decode(DecodeQ5_0);
    case DType::kQ5_1:
      return decode(DecodeQ5_1);
    case DType::kQ8_0:
      return decode(DecodeQ8_0);
    case DType::kQ2_K:
      return decode(DecodeQ2_K);
    case DType::kQ3_K:
      return decode(DecodeQ3_K);
    case DType::kQ4_K:
      return decode(DecodeQ4_K);
    case DType::kQ5_K:
      return decode(DecodeQ5_K);
    case DType::kQ6_K:
      return decode(DecodeQ6_K);
    case DType::kIQ4_NL:
      return decode(DecodeIQ4_NL);
    case DType::kIQ4_XS:
      return decode(DecodeIQ4_XS);
    case DType::kMXFP4:
      return decode(DecodeMXFP4);
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
      assert(false && "an integer type");
      return;
    default:
      return decode([&](const uint8_t* block, float* to) { DecodeCoded(dtype, block, to); });
  }
}

}  // namespace lm
