// The kernels, compiled for AVX2 + FMA + F16C.
#include <cassert>

#include "engine/backend/cpu/simd_avx2.h"

#include "engine/backend/cpu/dot_groups_avx2.h"
#include "engine/backend/cpu/split_bytes_avx2.h"

#include "engine/backend/cpu/isa_kernels.h"

namespace lm {
namespace {

// So many tokens come in tiles of three and four.
void MultiplySplitBytes(const QuantizedProduct& args) {
  static_assert(kQuantizedTokens == 4 && kPairTokens < 3 && kSplitTokens > kMostPacked &&
                kSplitBytesTokens >= kSplitTokens);
  assert(args.tokens >= 3 && args.panels == kTilePanels);
  auto multiply =
      args.tokens == 4
          ? MultiplyQuantizedTile<SplitBytes, true, UnpackedScales, false, 0, 4, kTilePanels>
          : MultiplyQuantizedTile<SplitBytes, true, UnpackedScales, false, 0, 3, kTilePanels>;
  multiply(args);
}

constexpr CpuKernels WithSplitBytes(CpuKernels kernels) {
  kernels.split_tokens[0] = kSplitTokens;
  kernels.split_tokens[1] = kSplitBytesTokens;
  kernels.split_codes = SplitCodes;
  kernels.split_product = MultiplySplitBytes;
  return kernels;
}

}  // namespace

const CpuKernels kAvx2Kernels = WithSplitBytes(kIsaKernels);

}  // namespace lm
