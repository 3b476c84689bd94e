// SHA-256 (FIPS 180-4), of bytes that come piece by piece.
//
//   Sha256 hash;
//   hash.Add(bytes); ...
//   std::string digits = hash.Hex();        // ends it
#ifndef LM_ENGINE_BASE_SHA256_H_
#define LM_ENGINE_BASE_SHA256_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace lm {

// A value type.
class Sha256 {
 public:
  void Add(absl::string_view bytes);
  // 64 digits in lower case. Nothing may be added after it.
  std::string Hex();

 private:
  void AddBlock(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint64_t bytes_ = 0;
  std::array<uint8_t, 64> held_ = {};  // the first bytes_ % 64 of them
};

}  // namespace lm

#endif  // LM_ENGINE_BASE_SHA256_H_
