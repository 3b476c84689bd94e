// Writes small GGUF files in memory, right ones and wrong ones.
//
//   std::string bytes = GgufBuilder()
//                           .Add("general.architecture", "llama")
//                           .Add("llama.block_count", uint32_t{2})
//                           .AddTensor("output.weight", kGgmlF32, {4, 2}, Bytes<float>({...}))
//                           .Build();
//
// Nothing is checked: counts, types, offsets and sizes can be made to say anything.
#ifndef LM_TESTS_ENGINE_GGUF_GGUF_BUILDER_H_
#define LM_TESTS_ENGINE_GGUF_GGUF_BUILDER_H_

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/tensor/dtype.h"

namespace lm {

// ggml's numbers of the tensor types that tests name.
inline constexpr uint32_t kGgmlF32 = 0;
inline constexpr uint32_t kGgmlF16 = 1;
inline constexpr uint32_t kGgmlQ4_0 = 2;
inline constexpr uint32_t kGgmlQ8_0 = 8;
inline constexpr uint32_t kGgmlQ4_K = 12;
inline constexpr uint32_t kGgmlI32 = 26;

// GGUF's numbers of the value types.
inline constexpr uint32_t kGgufString = 8;
inline constexpr uint32_t kGgufArray = 9;

// The bytes of numbers, as they lie in a file.
template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}
template <typename T>
std::string Bytes(T value) {
  static_assert(std::is_arithmetic_v<T>);
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}
// A length, then the text.
inline std::string StringBytes(const std::string& text) {
  return Bytes<uint64_t>(text.size()) + text;
}

// ggml's number of a type we support.
inline uint32_t GgmlNumber(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ5_0:
      return 6;
    case DType::kQ5_1:
      return 7;
    case DType::kQ8_0:
      return 8;
    case DType::kQ2_K:
      return 10;
    case DType::kQ3_K:
      return 11;
    case DType::kQ4_K:
      return 12;
    case DType::kQ5_K:
      return 13;
    case DType::kQ6_K:
      return 14;
    case DType::kIQ4_NL:
      return 20;
    case DType::kIQ4_XS:
      return 23;
    case DType::kMXFP4:
      return 39;
    case DType::kNVFP4:
      return 40;
    case DType::kIQ3_XXS:
      return 18;
    case DType::kIQ3_S:
      return 21;
    case DType::kIQ2_XXS:
      return 16;
    case DType::kIQ2_XS:
      return 17;
    case DType::kIQ2_S:
      return 22;
    case DType::kIQ1_S:
      return 19;
    case DType::kIQ1_M:
      return 29;
    case DType::kTQ1_0:
      return 34;
    case DType::kTQ2_0:
      return 35;
    case DType::kQ1_0:
      return 41;
    case DType::kQ2_0:
      return 42;
    case DType::kI8:
      return 24;
    case DType::kI16:
      return 25;
    case DType::kI32:
      return 26;
    case DType::kBF16:
      return 30;
  }
  return ~0u;
}

class GgufBuilder {
 public:
  // The header's fields; counts that are not set are right.
  GgufBuilder& Magic(std::string magic) { return magic_ = std::move(magic), *this; }
  GgufBuilder& Version(uint32_t version) { return version_ = version, *this; }
  GgufBuilder& NumPairs(uint64_t count) { return num_pairs_ = count, *this; }
  GgufBuilder& NumTensors(uint64_t count) { return num_tensors_ = count, *this; }

  // Adds the key general.alignment and lays the tensors out by it.
  GgufBuilder& Alignment(uint32_t alignment) {
    alignment_ = alignment;
    return Add("general.alignment", alignment);
  }

  // A pair with any type number and any bytes for its value.
  GgufBuilder& AddRaw(const std::string& key, uint32_t type, const std::string& value) {
    pairs_ += StringBytes(key) + Bytes(type) + value;
    ++pairs_added_;
    return *this;
  }
  GgufBuilder& AddRawArray(const std::string& key, uint32_t type, uint64_t count,
                           const std::string& elements) {
    return AddRaw(key, kGgufArray, Bytes(type) + Bytes(count) + elements);
  }

  // A pair of the value type that T corresponds to.
  template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  GgufBuilder& Add(const std::string& key, T value) {
    return AddRaw(key, TypeOf<T>(), Bytes(value));
  }
  GgufBuilder& Add(const std::string& key, const char* value) {
    return Add(key, std::string(value));
  }
  GgufBuilder& Add(const std::string& key, const std::string& value) {
    return AddRaw(key, kGgufString, StringBytes(value));
  }
  template <typename T>
  GgufBuilder& Add(const std::string& key, const std::vector<T>& values) {
    std::string bytes;
    for (const T& value : values) {
      if constexpr (std::is_same_v<T, std::string>) {
        bytes += StringBytes(value);
      } else {
        bytes += Bytes<T>(value);
      }
    }
    return AddRawArray(key, TypeOf<T>(), values.size(), bytes);
  }

  // A tensor whose bytes follow those of the one before, aligned; `offset`, where given, is what
  // the directory says instead.
  GgufBuilder& AddTensor(const std::string& name, uint32_t ggml_type, std::vector<uint64_t> dims,
                         const std::string& bytes, std::optional<uint64_t> offset = std::nullopt) {
    data_.resize(AlignUp(data_.size()));
    directory_ += StringBytes(name) + Bytes<uint32_t>(dims.size()) + Bytes(dims) +
                  Bytes(ggml_type) + Bytes<uint64_t>(offset.value_or(data_.size()));
    data_ += bytes;
    ++tensors_added_;
    return *this;
  }
  GgufBuilder& AddTensor(const std::string& name, DType dtype, std::vector<uint64_t> dims,
                         const std::string& bytes) {
    return AddTensor(name, GgmlNumber(dtype), std::move(dims), bytes);
  }

  // Everything in front of the tensors' bytes, not padded.
  std::string BuildHeader() const {
    return magic_ + Bytes(version_) + Bytes(num_tensors_.value_or(tensors_added_)) +
           Bytes(num_pairs_.value_or(pairs_added_)) + pairs_ + directory_;
  }
  std::string Build() const {
    std::string file = BuildHeader();
    if (!data_.empty()) file.resize(AlignUp(file.size()));
    return file + data_;
  }

 private:
  template <typename T>
  static constexpr uint32_t TypeOf() {
    if (std::is_same_v<T, uint8_t>) return 0;
    if (std::is_same_v<T, int8_t>) return 1;
    if (std::is_same_v<T, uint16_t>) return 2;
    if (std::is_same_v<T, int16_t>) return 3;
    if (std::is_same_v<T, uint32_t>) return 4;
    if (std::is_same_v<T, int32_t>) return 5;
    if (std::is_same_v<T, float>) return 6;
    if (std::is_same_v<T, bool>) return 7;
    if (std::is_same_v<T, std::string>) return kGgufString;
    if (std::is_same_v<T, uint64_t>) return 10;
    if (std::is_same_v<T, int64_t>) return 11;
    if (std::is_same_v<T, double>) return 12;
  }

  size_t AlignUp(size_t size) const {
    return alignment_ == 0 ? size : (size + alignment_ - 1) / alignment_ * alignment_;
  }

  std::string magic_ = "GGUF";
  uint32_t version_ = 3;
  std::optional<uint64_t> num_pairs_;
  std::optional<uint64_t> num_tensors_;
  uint64_t pairs_added_ = 0;
  uint64_t tensors_added_ = 0;
  uint32_t alignment_ = 32;
  std::string pairs_;
  std::string directory_;
  std::string data_;
};

}  // namespace lm

#endif  // LM_TESTS_ENGINE_GGUF_GGUF_BUILDER_H_
