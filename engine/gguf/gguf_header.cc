#include "engine/gguf/gguf_header.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "engine/gguf/tensor_type.h"

namespace lm {
namespace {

// The format's numbers for types of values.
enum GgufType : uint32_t {
  kU8 = 0,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBoolean = 7,
  kText = 8,
  kList = 9,
  kU64 = 10,
  kI64 = 11,
};

template <typename T>
void Put(T value, std::string* out) {
  static_assert(std::is_trivially_copyable_v<T>);
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void PutText(absl::string_view text, std::string* out) {
  Put<uint64_t>(text.size(), out);
  out->append(text.data(), text.size());
}

template <typename Narrow, typename Wide>
bool AllFit(const std::vector<Wide>& values) {
  return std::all_of(values.begin(), values.end(), [](Wide value) {
    return value >= Wide{std::numeric_limits<Narrow>::min()} &&
           value <= Wide{std::numeric_limits<Narrow>::max()};
  });
}

template <typename As, typename T>
void PutArray(GgufType type, const std::vector<T>& values, std::string* out) {
  Put<uint32_t>(kList, out);
  Put<uint32_t>(type, out);
  Put<uint64_t>(values.size(), out);
  for (const T value : values) Put(static_cast<As>(value), out);
}

struct Writer {
  std::string* out;
  bool bytes;  // arrays of integers are of bytes

  void operator()(bool value) const {
    Put<uint32_t>(kBoolean, out);
    Put<uint8_t>(value, out);
  }
  void operator()(int64_t value) const {
    const bool fits = AllFit<int32_t>(std::vector<int64_t>{value});
    Put<uint32_t>(fits ? kI32 : kI64, out);
    fits ? Put(static_cast<int32_t>(value), out) : Put(value, out);
  }
  void operator()(uint64_t value) const {
    const bool fits = value <= std::numeric_limits<uint32_t>::max();
    Put<uint32_t>(fits ? kU32 : kU64, out);
    fits ? Put(static_cast<uint32_t>(value), out) : Put(value, out);
  }
  void operator()(double value) const {
    Put<uint32_t>(kF32, out);
    Put(static_cast<float>(value), out);
  }
  void operator()(const std::string& value) const {
    Put<uint32_t>(kText, out);
    PutText(value, out);
  }
  void operator()(const std::vector<bool>& values) const {
    PutArray<uint8_t>(kBoolean, values, out);
  }
  void operator()(const std::vector<int64_t>& values) const {
    if (bytes) return PutArray<uint8_t>(kU8, values, out);
    if (AllFit<int32_t>(values)) return PutArray<int32_t>(kI32, values, out);
    PutArray<int64_t>(kI64, values, out);
  }
  void operator()(const std::vector<uint64_t>& values) const {
    if (bytes) return PutArray<uint8_t>(kU8, values, out);
    if (AllFit<uint32_t>(values)) return PutArray<uint32_t>(kU32, values, out);
    PutArray<uint64_t>(kU64, values, out);
  }
  void operator()(const std::vector<double>& values) const { PutArray<float>(kF32, values, out); }
  void operator()(const std::vector<std::string>& values) const {
    Put<uint32_t>(kList, out);
    Put<uint32_t>(kText, out);
    Put<uint64_t>(values.size(), out);
    for (const std::string& value : values) PutText(value, out);
  }
};

uint64_t AlignUp(uint64_t bytes) {
  return (bytes + GgufHeader::kAlignment - 1) / GgufHeader::kAlignment * GgufHeader::kAlignment;
}

}  // namespace

void GgufHeader::Add(std::string key, MetadataValue value) {
  pairs_.emplace_back(std::move(key), std::move(value));
}

void GgufHeader::AddTensor(absl::string_view name, const std::vector<uint64_t>& dims, DType dtype) {
  PutText(name, &directory_);
  Put(static_cast<uint32_t>(dims.size()), &directory_);
  uint64_t values = 1;
  for (const uint64_t dim : dims) {
    Put(dim, &directory_);
    values *= dim;
  }
  Put(GgmlNumber(dtype), &directory_);
  Put(data_bytes_, &directory_);
  offsets_.push_back(data_bytes_);
  data_bytes_ += AlignUp(RowBytes(dtype, static_cast<int64_t>(values)));
}

std::string GgufHeader::Finish() {
  std::sort(pairs_.begin(), pairs_.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string out = "GGUF";
  Put<uint32_t>(3, &out);
  Put<uint64_t>(offsets_.size(), &out);
  Put<uint64_t>(pairs_.size(), &out);
  for (const auto& [key, value] : pairs_) {
    PutText(key, &out);
    std::visit(Writer{&out, key == "tokenizer.ggml.precompiled_charsmap"}, value);
  }
  out += directory_;
  out.resize(AlignUp(out.size()));
  return out;
}

}  // namespace lm
