#include "engine/base/digest.h"

#include <cassert>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/base/digest_lanes.h"
#include "engine/base/processor.h"

namespace lm {

Digester::Digester(uint64_t seed) {
  for (int i = 0; i < 4; ++i)
    lanes_[i] = kSquareRoots[i] + FoldProduct(seed ^ kSquareRoots[3 - i], kSquareRoots[i]);
}

void Digester::Add(absl::string_view piece) {
  assert(size_ % kBlockBytes == 0);
  size_ += piece.size();
  const size_t blocks = piece.size() / kBlockBytes;
  MixDigestBlocks(lanes_, piece.data(), blocks);
  piece.remove_prefix(blocks * kBlockBytes);
  if (!piece.empty()) std::memcpy(last_, piece.data(), piece.size());
}

Digest Digester::Finish() {
  MixDigestBlocks(lanes_, last_, 1);
  const uint64_t a = FoldProduct(lanes_[0] ^ size_, lanes_[1] ^ kSquareRoots[2]) + lanes_[2];
  const uint64_t b = FoldProduct(lanes_[2] ^ kSquareRoots[0], lanes_[3] ^ size_) + lanes_[1];
  return {FoldProduct(a ^ kSquareRoots[1], b ^ kSquareRoots[3]) + lanes_[3],
          FoldProduct(b + lanes_[0], a ^ kSquareRoots[0])};
}

Digest DigestOf(absl::string_view bytes, uint64_t seed) {
  Digester digester(seed);
  digester.Add(bytes);
  return digester.Finish();
}

std::string Digest::Hex() const {
  return absl::StrCat(absl::Hex(high, absl::kZeroPad16), absl::Hex(low, absl::kZeroPad16));
}

}  // namespace lm
