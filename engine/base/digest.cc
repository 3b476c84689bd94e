#include "engine/base/digest.h"

#include <cassert>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace lm {
namespace {

// The fractional parts of the square roots of 2, 3, 5 and 7, made odd.
constexpr uint64_t kSquareRoots[4] = {0x6a09e667f3bcc909, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
                                      0xa54ff53a5f1d36f1};

// All bits of the product of two words, folded into one word: each of them depends on every bit of
// both.
uint64_t Fold(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const auto high = static_cast<uint64_t>(static_cast<Wide>(a) * b >> 64);
  return (a * b) ^ high;
}

uint64_t Word(const char* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

}  // namespace

Digester::Digester(uint64_t seed) {
  for (int i = 0; i < 4; ++i)
    lanes_[i] = kSquareRoots[i] + Fold(seed ^ kSquareRoots[3 - i], kSquareRoots[i]);
}

// Four chains of multiplications, so that one need not wait for the other. They are in registers:
// each turn through memory would take nearly as long as its product.
void Digester::Take(const char* blocks, size_t count) {
  uint64_t lanes[4];
  std::memcpy(lanes, lanes_, sizeof(lanes));
  for (; count > 0; --count, blocks += kBlockBytes) {
    for (int i = 0; i < 4; ++i) {
      const uint64_t word = Word(blocks + 8 * i);
      // Adding the word keeps it where the product loses it (one factor is zero).
      lanes[i] = Fold(lanes[i] ^ word, kSquareRoots[i]) + (word + kSquareRoots[3 - i]);
    }
  }
  std::memcpy(lanes_, lanes, sizeof(lanes));
}

void Digester::Add(absl::string_view piece) {
  assert(size_ % kBlockBytes == 0);
  size_ += piece.size();
  const size_t blocks = piece.size() / kBlockBytes;
  Take(piece.data(), blocks);
  piece.remove_prefix(blocks * kBlockBytes);
  if (!piece.empty()) std::memcpy(last_, piece.data(), piece.size());
}

Digest Digester::Finish() {
  Take(last_, 1);
  const uint64_t a = Fold(lanes_[0] ^ size_, lanes_[1] ^ kSquareRoots[2]) + lanes_[2];
  const uint64_t b = Fold(lanes_[2] ^ kSquareRoots[0], lanes_[3] ^ size_) + lanes_[1];
  return {Fold(a ^ kSquareRoots[1], b ^ kSquareRoots[3]) + lanes_[3],
          Fold(b + lanes_[0], a ^ kSquareRoots[0])};
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
