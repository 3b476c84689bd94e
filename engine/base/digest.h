// A 128-bit digest of bytes, the same in every process: tells models and remembered answers apart.
//
//   std::string name = DigestOf(bytes).Hex();
//
// It runs at the speed of memory and is not cryptographic: it notices every accident, but whoever
// may choose the bytes can make two texts with one digest. Nothing relies on it against an
// attacker.
#ifndef LM_ENGINE_BASE_DIGEST_H_
#define LM_ENGINE_BASE_DIGEST_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace lm {

struct Digest {
  uint64_t high = 0;
  uint64_t low = 0;

  std::string Hex() const;  // 32 digits

  friend bool operator==(const Digest&, const Digest&) = default;
};

// Equal bytes under another seed have another digest.
Digest DigestOf(absl::string_view bytes, uint64_t seed = 0);

}  // namespace lm

#endif  // LM_ENGINE_BASE_DIGEST_H_
