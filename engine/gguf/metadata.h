// The key-value part of a GGUF file.
#ifndef LM_ENGINE_GGUF_METADATA_H_
#define LM_ENGINE_GGUF_METADATA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/base/hash_map.h"
#include "engine/base/variant.h"

namespace lm {

// One metadata value. Integers of every width are widened; arrays are typed and flat (GGUF's nested
// arrays are refused: no known key has one).
using MetadataValue =
    Variant<bool, int64_t, uint64_t, double, std::string, std::vector<bool>, std::vector<int64_t>,
            std::vector<uint64_t>, std::vector<double>, std::vector<std::string>>;

// Getters return NotFound for an absent key and InvalidArgument for one of the wrong type; both
// name the key, and the second what was wanted and what is there.
class Metadata {
 public:
  bool Has(absl::string_view key) const { return values_.contains(key); }

  absl::StatusOr<std::string> GetString(absl::string_view key) const;
  // Any integer type whose value fits.
  absl::StatusOr<int64_t> GetInt(absl::string_view key) const;
  // A floating-point type; finite as F32, or the error says which value it is.
  absl::StatusOr<double> GetFloat(absl::string_view key) const;
  absl::StatusOr<bool> GetBool(absl::string_view key) const;
  // Views stay valid as long as the Metadata.
  absl::StatusOr<absl::Span<const std::string>> GetStrings(absl::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> GetInts(absl::string_view key) const;
  // All finite as F32, or the error names the first index that is not.
  absl::StatusOr<std::vector<float>> GetFloats(absl::string_view key) const;

  // All pairs, for listings.
  const HashMap<std::string, MetadataValue>& values() const { return values_; }

  // Adds a pair. False, and nothing changes, where the key is there already.
  bool Insert(std::string key, MetadataValue value);

  // For who translates a file's metadata. Sets a key, there or not; takes one away, where it is
  // there; gives one another name, unless that is there already; leaves an array, if it is one,
  // its first `size` elements.
  void Set(std::string key, MetadataValue value);
  void Erase(const std::string& key) { values_.erase(key); }
  void Rename(const std::string& from, std::string to);
  void CutArray(absl::string_view key, size_t size);

 private:
  HashMap<std::string, MetadataValue> values_;
};

}  // namespace lm

#endif  // LM_ENGINE_GGUF_METADATA_H_
