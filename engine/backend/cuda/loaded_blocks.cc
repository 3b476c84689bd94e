#include "engine/backend/cuda/loaded_blocks.h"

#include <cstring>

#include "engine/backend/cuda/weight_block.cuh"
#include "engine/backend/quantized_block.h"
#include "engine/gguf/block_layout.h"
#include "engine/gguf/coded_blocks.h"

namespace lm::cuda {
namespace {

void MakeMxfp4Even(absl::Span<const char> blocks, char* to) {
  const auto bytes = static_cast<size_t>(Traits(DType::kMXFP4).block_bytes);
  for (size_t at = 0; at < blocks.size(); at += bytes, to += bytes + 1) {
    const char* from = blocks.data() + at;
    const uint16_t scale = Mxfp4ScaleBits(static_cast<uint8_t>(from[0]));
    std::memcpy(to, &scale, sizeof(scale));
    std::memcpy(to + sizeof(scale), from + 1, bytes - 1);
  }
}

void Expand(DType dtype, absl::Span<const char> blocks, char* out) {
  const QuantizedTraits& traits = GetQuantizedTraits(dtype);
  const DTypeTraits& sizes = Traits(dtype);
  const int64_t count =
      static_cast<int64_t>(blocks.size()) / sizes.block_bytes * (sizes.block_size / 32);
  auto* to = reinterpret_cast<ExpandedBlock*>(out);
  for (int64_t b = 0; b < count; ++b, ++to) {
    QuantizedBlock block;
    DecodeQuantizedBlock(dtype, blocks.data(), b, &block);
    to->d = BlockScale(traits, block.d_bits);
    for (int half = 0; half < 2; ++half) to->scale[half] = block.scale[half];
    if (!traits.half_scales) {
      to->d *= static_cast<float>(block.scale[0]);
      to->scale[0] = to->scale[1] = 1;
    }
    for (int i = 0; i < 32; ++i) {
      const uint8_t code = block.codes[i];
      to->q[i] =
          static_cast<int8_t>(traits.table != nullptr ? traits.table[code] : code - traits.offset);
    }
  }
}

}  // namespace

bool ChangesOnDevice(DType dtype) { return dtype == DType::kMXFP4 || IsCoded(dtype); }

int64_t RowBytesOnDevice(DType dtype, int64_t cols) {
  if (IsCoded(dtype)) return cols / 32 * static_cast<int64_t>(sizeof(ExpandedBlock));
  const int64_t scales = dtype == DType::kMXFP4 ? cols / Traits(dtype).block_size : 0;
  return RowBytes(dtype, cols) + scales;
}

void WriteBlocksOnDevice(DType dtype, absl::Span<const char> blocks, char* to) {
  return dtype == DType::kMXFP4 ? MakeMxfp4Even(blocks, to) : Expand(dtype, blocks, to);
}

}  // namespace lm::cuda
