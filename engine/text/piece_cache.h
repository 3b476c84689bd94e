// The tokens of short pieces that a text has had already: words come again.
#ifndef LM_ENGINE_TEXT_PIECE_CACHE_H_
#define LM_ENGINE_TEXT_PIECE_CACHE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/numeric/bits.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lm {

// One place for each hash; what comes last stays. Exact: pieces are compared, not their hashes.
class PieceCache {
 public:
  // For a text of so many bytes; a short one has no words that come again.
  explicit PieceCache(size_t text_bytes) {
    if (text_bytes < kLeastText) return;
    entries_.resize(std::min(absl::bit_ceil(text_bytes / 16), kMostEntries));
  }

  // Appends the piece's tokens; false where they are not known.
  bool Append(absl::string_view piece, std::vector<int32_t>* ids) {
    if (entries_.empty() || piece.size() > kMostBytes) return false;
    const Key key = KeyOf(piece);
    const Entry& entry = entries_[PlaceOf(key)];
    if (entry.key != key) return false;
    ids->insert(ids->end(), entry.ids.begin(), entry.ids.begin() + entry.size);
    return true;
  }

  void Add(absl::string_view piece, absl::Span<const int32_t> ids) {
    if (entries_.empty() || piece.size() > kMostBytes || ids.size() > kMostTokens) return;
    const Key key = KeyOf(piece);
    Entry& entry = entries_[PlaceOf(key)];
    entry.key = key;
    entry.size = static_cast<uint32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), entry.ids.begin());
  }

 private:
  static constexpr size_t kLeastText = 1024;
  static constexpr size_t kMostEntries = 8192;
  static constexpr size_t kMostBytes = 23;
  static constexpr size_t kMostTokens = 7;

  // The piece, padded with zeros, and its size in the last byte; so no piece's is all zeros.
  using Key = std::array<uint64_t, 3>;
  struct Entry {
    Key key{};
    std::array<int32_t, kMostTokens> ids;
    uint32_t size;
  };

  static Key KeyOf(absl::string_view piece) {
    std::array<char, sizeof(Key)> bytes{};
    std::memcpy(bytes.data(), piece.data(), piece.size());
    bytes[kMostBytes] = static_cast<char>(piece.size());
    Key key;
    std::memcpy(&key, bytes.data(), sizeof(key));
    return key;
  }

  size_t PlaceOf(const Key& key) const {
    uint64_t mixed = 0;
    for (uint64_t word : key) mixed = (mixed ^ word ^ (mixed >> 29)) * 0x9e3779b97f4a7c15u;
    return (mixed >> 32) & (entries_.size() - 1);
  }

  std::vector<Entry> entries_;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_PIECE_CACHE_H_
