// A 128-bit digest of bytes, the same in every process: tells models and remembered answers apart.
//
//   std::string name = DigestOf(bytes).Hex();
//
//   Digester digester;
//   digester.Add(a);  // of a multiple of 32 bytes
//   digester.Add(b);
//   Digest of_both = digester.Finish();
//
// It runs at the speed of memory and is not cryptographic: it notices every accident, but whoever
// may choose the bytes can make two texts with one digest. Nothing relies on it against an
// attacker.
#ifndef LM_ENGINE_BASE_DIGEST_H_
#define LM_ENGINE_BASE_DIGEST_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/base/digest_lanes.h"

namespace lm {

struct Digest {
  uint64_t high = 0;
  uint64_t low = 0;

  std::string Hex() const;  // 32 digits

  friend bool operator==(const Digest&, const Digest&) = default;
};

// Equal bytes under another seed have another digest.
Digest DigestOf(absl::string_view bytes, uint64_t seed = 0);

// The digest of bytes that come in pieces.
class Digester {
 public:
  // What every piece but the last has a multiple of.
  static constexpr size_t kBlockBytes = kDigestBlockBytes;

  explicit Digester(uint64_t seed = 0);
  void Add(absl::string_view piece);
  Digest Finish();

 private:
  uint64_t lanes_[4];
  uint64_t size_ = 0;
  char last_[kBlockBytes] = {};  // what is left of a block, zeros behind
};

}  // namespace lm

#endif  // LM_ENGINE_BASE_DIGEST_H_
