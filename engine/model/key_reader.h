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
            std::function<int64_t(absl::string_view name)> rows_of = nullptr)
      : metadata_(metadata), architecture_(std::move(architecture)), rows_of_(std::move(rows_of)) {}

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
  // An array of `count` booleans or of integers (0 is false), or of the first `least` of them, the
  // others being false; empty where there is no such key.
  absl::StatusOr<std::vector<bool>> Bools(absl::string_view name, int64_t count, int64_t least);
  absl::StatusOr<std::vector<bool>> Bools(absl::string_view name, int64_t count) {
    return Bools(name, count, count);
  }
  bool IsArray(absl::string_view name);
  absl::StatusOr<bool> BoolOr(absl::string_view name, bool otherwise);
  // A number for each of `count` layers, or other things: an array of them, or one for all.
  absl::StatusOr<std::vector<int64_t>> IntsOr(absl::string_view name, int64_t count, int64_t low,
                                              int64_t high, int64_t otherwise,
                                              absl::string_view things = "layers");

  // The first `count` of an array, which must be there and may be longer.
  absl::StatusOr<std::vector<int64_t>> FirstInts(absl::string_view name, int64_t count, int64_t low,
                                                 int64_t high);

  // The same of floats, which need not be finite; empty where there is no such key.
  absl::StatusOr<std::vector<float>> Floats(absl::string_view name, int64_t count);
  absl::StatusOr<double> Float(absl::string_view name) { return metadata_.GetFloat(Asked(name)); }
  // The same of finite numbers >= 0; 0 where there is no such key.
  absl::StatusOr<std::vector<float>> NotNegatives(absl::string_view name, int64_t count);

  // Rows of a tensor, 0 where the file has none: some variants of an architecture differ in nothing
  // else.
  int64_t RowsOf(absl::string_view name) const { return rows_of_ ? rows_of_(name) : 0; }
  bool HasTensor(absl::string_view name) const { return RowsOf(name) > 0; }

  // Unimplemented for a key of the architecture that was not asked for and matters.
  absl::Status CheckTheOthers() const;

 private:
  std::string Asked(absl::string_view name);

  const Metadata& metadata_;
  const std::string architecture_;
  const std::function<int64_t(absl::string_view name)> rows_of_;
  HashSet<std::string> asked_;
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_KEY_READER_H_
