// What a Digester does to each block of bytes, compiled for each family of processors
// (processor.h).
#ifndef LM_ENGINE_BASE_DIGEST_LANES_H_
#define LM_ENGINE_BASE_DIGEST_LANES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace lm {

inline constexpr size_t kDigestBlockBytes = 32;

// The fractional parts of the square roots of 2, 3, 5 and 7, made odd.
inline constexpr uint64_t kSquareRoots[4] = {0x6a09e667f3bcc909, 0xbb67ae8584caa73b,
                                             0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1};

// All bits of the product of two words, folded into one word: each of them depends on every bit of
// both.
[[gnu::always_inline]] inline uint64_t FoldProduct(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const auto high = static_cast<uint64_t>(static_cast<Wide>(a) * b >> 64);
  return (a * b) ^ high;
}

// Takes `count` blocks into the lanes: four chains of multiplications, so that one need not wait
// for the other. They are in registers: each turn through memory would take nearly as long as its
// product.
[[gnu::always_inline]] inline void MixBlocks(uint64_t (&to)[4], const char* blocks, size_t count) {
  uint64_t lanes[4];
  std::memcpy(lanes, to, sizeof(lanes));
  for (; count > 0; --count, blocks += kDigestBlockBytes) {
    for (int i = 0; i < 4; ++i) {
      uint64_t word;
      std::memcpy(&word, blocks + 8 * i, sizeof(word));
      // Adding the word keeps it where the product loses it (one factor is zero).
      lanes[i] = FoldProduct(lanes[i] ^ word, kSquareRoots[i]) + (word + kSquareRoots[3 - i]);
    }
  }
  std::memcpy(to, lanes, sizeof(lanes));
}

}  // namespace lm

#endif  // LM_ENGINE_BASE_DIGEST_LANES_H_
