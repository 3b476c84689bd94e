// KeyReader: the metadata of one architecture: Int("block_count") is "<architecture>.block_count".
//
//   KeyReader keys(gguf.metadata(), "llama");
//   ASSIGN_OR_RETURN(spec.hidden, keys.Int("embedding_length", 1, kMaxDim));
//   RETURN_IF_ERROR(keys.CheckTheOthers());
//
// It takes note of every key that is asked for, so that at the end none is left that matters.
#ifndef LM_ENGINE_MODEL_KEY_READER_H_
#define LM_ENGINE_MODEL_KEY_READER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/hash_map.h"
#include "engine/gguf/metadata.h"

namespace lm {

// Wider than any real model; small enough that products of two of them fit in 64 bits.
inline constexpr int64_t kMaxDim = int64_t{1} << 24;

// Errors are InvalidArgument and name the key, what was wanted and what is there.
class KeyReader {
 public:
  // REQUIRES: `metadata` outlives it.
  KeyReader(const Metadata& metadata, std::string architecture,
            std::function<bool(absl::string_view name)> has_tensor = nullptr)
      : metadata_(metadata),
        architecture_(std::move(architecture)),
        has_tensor_(std::move(has_tensor)) {}

  const std::string& architecture() const { return architecture_; }
  // The key's full name.
  std::string Key(absl::string_view name) const;
  bool Has(absl::string_view name);

  absl::StatusOr<std::string> String(absl::string_view name);
  absl::StatusOr<int64_t> Int(absl::string_view name, int64_t low, int64_t high);
  absl::StatusOr<int64_t> IntOr(absl::string_view name, int64_t low, int64_t high,
                                int64_t otherwise);
  // A finite number > 0.
  absl::StatusOr<double> Positive(absl::string_view name);
  absl::StatusOr<double> PositiveOr(absl::string_view name, double otherwise);
  absl::StatusOr<double> NotNegativeOr(absl::string_view name, double otherwise);
  // An array of `count` booleans or of integers (0 is false); empty where there is no such key.
  absl::StatusOr<std::vector<bool>> Bools(absl::string_view name, int64_t count);
  bool IsArray(absl::string_view name);
  absl::StatusOr<bool> BoolOr(absl::string_view name, bool otherwise);
  // A number for each of `count` layers: an array of them, or one for all.
  absl::StatusOr<std::vector<int64_t>> IntsOr(absl::string_view name, int64_t count, int64_t low,
                                              int64_t high, int64_t otherwise);

  // Whether the file has the tensor: some variants of an architecture differ in nothing else.
  bool HasTensor(absl::string_view name) const { return has_tensor_ && has_tensor_(name); }

  // Unimplemented for a key of the architecture that was not asked for and matters.
  absl::Status CheckTheOthers() const;

 private:
  std::string Asked(absl::string_view name);

  const Metadata& metadata_;
  const std::string architecture_;
  const std::function<bool(absl::string_view name)> has_tensor_;
  HashSet<std::string> asked_;
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_KEY_READER_H_
