#include "engine/backend/cuda/loaded_blocks.h"

#include <cstring>
#include <utility>

#include "engine/backend/cuda/weight_block.cuh"
#include "engine/backend/quantized_block.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/block_layout.h"
#include "engine/gguf/coded_blocks.h"

namespace lm::cuda {
namespace {

absl::StatusOr<Buffer> MakeMxfp4Even(const Buffer& blocks) {
  const int64_t bytes = Traits(DType::kMXFP4).block_bytes;
  const int64_t count = static_cast<int64_t>(blocks.bytes()) / bytes;
  ASSIGN_OR_RETURN(Buffer even, Buffer::AllocateHost(count * (bytes + 1)));
  const char* from = blocks.chars().data();
  char* to = even.chars().data();
  for (int64_t b = 0; b < count; ++b, from += bytes, to += bytes + 1) {
    const uint16_t scale = Mxfp4ScaleBits(static_cast<uint8_t>(from[0]));
    std::memcpy(to, &scale, sizeof(scale));
    std::memcpy(to + sizeof(scale), from + 1, bytes - 1);
  }
  return even;
}

absl::StatusOr<Buffer> Expand(DType dtype, const Buffer& blocks) {
  const QuantizedTraits& traits = GetQuantizedTraits(dtype);
  const DTypeTraits& sizes = Traits(dtype);
  const int64_t count =
      static_cast<int64_t>(blocks.bytes()) / sizes.block_bytes * (sizes.block_size / 32);
  ASSIGN_OR_RETURN(Buffer expanded, Buffer::AllocateHost(count * sizeof(ExpandedBlock)));
  auto* to = static_cast<ExpandedBlock*>(expanded.data());
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
  return expanded;
}

}  // namespace

absl::StatusOr<Buffer> BlocksOnDevice(DType dtype, Buffer blocks) {
  if (dtype == DType::kMXFP4) return MakeMxfp4Even(blocks);
  if (IsCoded(dtype)) return Expand(dtype, blocks);
  return blocks;
}

int64_t RowBytesOnDevice(DType dtype, int64_t cols) {
  if (IsCoded(dtype)) return cols / 32 * static_cast<int64_t>(sizeof(ExpandedBlock));
  const int64_t scales = dtype == DType::kMXFP4 ? cols / Traits(dtype).block_size : 0;
  return RowBytes(dtype, cols) + scales;
}

}  // namespace lm::cuda
