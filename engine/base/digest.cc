#include "engine/base/digest.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace lm {
namespace {

// The fractional parts of the square roots of 2, 3, 5 and 7, made odd.
constexpr uint64_t kRoots[4] = {0x6a09e667f3bcc909, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
                                0xa54ff53a5f1d36f1};

// All bits of the product of two words, folded into one word: each of them depends on every bit of
// both.
uint64_t Fold(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t Word(const char* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

}  // namespace

Digest DigestOf(absl::string_view bytes, uint64_t seed) {
  // Four chains of multiplications, so that one need not wait for the other.
  uint64_t lanes[4];
  for (int i = 0; i < 4; ++i) lanes[i] = kRoots[i] + Fold(seed ^ kRoots[3 - i], kRoots[i]);
  auto take = [&lanes](const char* block) {
    for (int i = 0; i < 4; ++i) {
      const uint64_t word = Word(block + 8 * i);
      // Adding the word keeps it where the product loses it (one factor is zero).
      lanes[i] = Fold(lanes[i] ^ word, kRoots[i]) + word + kRoots[3 - i];
    }
  };
  const uint64_t size = bytes.size();
  while (bytes.size() >= 32) {
    take(bytes.data());
    bytes.remove_prefix(32);
  }
  char last[32] = {};
  if (!bytes.empty()) std::memcpy(last, bytes.data(), bytes.size());
  take(last);
  const uint64_t a = Fold(lanes[0] ^ size, lanes[1] ^ kRoots[2]) + lanes[2];
  const uint64_t b = Fold(lanes[2] ^ kRoots[0], lanes[3] ^ size) + lanes[1];
  return {Fold(a ^ kRoots[1], b ^ kRoots[3]) + lanes[3], Fold(b + lanes[0], a ^ kRoots[0])};
}

std::string Digest::Hex() const {
  return absl::StrCat(absl::Hex(high, absl::kZeroPad16), absl::Hex(low, absl::kZeroPad16));
}

}  // namespace lm
