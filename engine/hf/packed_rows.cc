#include "engine/hf/packed_rows.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/checkpoint.h"
#include "engine/base/float16.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/block_format.h"
#include "engine/gguf/message.h"

namespace lm {
namespace {

constexpr int64_t kBlock = 32;  // values a block of Q4_0, Q5_0 and Q8_0
constexpr int64_t kMaxSide = int64_t{1} << 24;

// AWQ's word holds outputs 0 to 7 in this order of nibbles, from the lowest: where output i is.
constexpr int kAwqNibble[] = {0, 4, 1, 5, 2, 6, 3, 7};

// The matrix's tensors, whose shapes fit.
struct Parts {
  const StoredTensor* weights = nullptr;
  const StoredTensor* zeros = nullptr;
  const StoredTensor* scales = nullptr;
};

absl::Status WantShape(const StoredTensor& tensor, absl::string_view types,
                       const std::vector<int64_t>& shape) {
  const bool same = std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end(),
                               [](int64_t a, uint64_t b) { return static_cast<uint64_t>(a) == b; });
  const bool typed = types == tensor.type ||
                     (types == "F16, BF16 or F32" &&
                      (tensor.type == "F16" || tensor.type == "BF16" || tensor.type == "F32"));
  if (same && typed) return absl::OkStatus();
  return StoredTensorError(tensor, absl::StrCat("wanted ", types, " [", absl::StrJoin(shape, ", "),
                                                "], got ", tensor.Description()));
}

// With checkpoints (checkpoint.h).
absl::Status ReadBytes(const StoredTensor& tensor, uint64_t begin, absl::Span<char> out) {
  constexpr size_t kPieceBytes = size_t{4} << 20;
  for (; !out.empty(); begin += kPieceBytes) {
    RETURN_IF_ERROR(Checkpoint());
    const absl::Span<char> piece = out.subspan(0, kPieceBytes);
    RETURN_IF_ERROR(tensor.file->Read(tensor.offset + begin, piece));
    out.remove_prefix(piece.size());
  }
  return absl::OkStatus();
}

template <typename T>
absl::Span<char> BytesOf(std::vector<T>& values) {
  return {reinterpret_cast<char*>(values.data()), values.size() * sizeof(T)};
}

template <typename T>
absl::StatusOr<std::vector<T>> ReadAll(const StoredTensor& tensor) {
  std::vector<T> values(tensor.bytes / sizeof(T));
  RETURN_IF_ERROR(ReadBytes(tensor, 0, BytesOf(values)));
  return values;
}

absl::StatusOr<std::vector<float>> ReadScales(const StoredTensor& tensor) {
  ASSIGN_OR_RETURN(const std::vector<char> bytes, ReadAll<char>(tensor));
  const DType dtype = tensor.type == "F16"    ? DType::kF16
                      : tensor.type == "BF16" ? DType::kBF16
                                              : DType::kF32;
  std::vector<float> values(bytes.size() / Traits(dtype).block_bytes);
  DequantizeRow(dtype, bytes.data(), static_cast<int64_t>(values.size()), values.data());
  return values;
}

}  // namespace

class PackedWords {
 public:
  struct Words {
    std::vector<uint32_t> weights, zeros;
    std::vector<float> scales;
  };

  absl::StatusOr<std::shared_ptr<const Words>> Get(const Parts& parts) {
    const std::shared_ptr<Matrix> matrix = Take(parts);
    absl::MutexLock lock(&matrix->mutex);
    if (matrix->words != nullptr) return matrix->words;
    auto words = std::make_shared<Words>();
    ASSIGN_OR_RETURN(words->weights, ReadAll<uint32_t>(*parts.weights));
    ASSIGN_OR_RETURN(words->zeros, ReadAll<uint32_t>(*parts.zeros));
    ASSIGN_OR_RETURN(words->scales, ReadScales(*parts.scales));
    matrix->words = std::move(words);
    return matrix->words;
  }

 private:
  static constexpr size_t kMost = 64;
  static constexpr uint64_t kMostBytes = uint64_t{128} << 20;  // or one larger matrix

  struct Matrix {
    const StoredTensor* owner;
    uint64_t bytes;
    absl::Mutex mutex;  // held by who reads it, once for all
    std::shared_ptr<const Words> words ABSL_GUARDED_BY(mutex);
  };

  // The matrix's place, which becomes the latest; those that were not asked for the longest give
  // up theirs, and their words live on with who reads them.
  std::shared_ptr<Matrix> Take(const Parts& parts) {
    absl::MutexLock lock(&mutex_);
    auto found = std::find_if(latest_.begin(), latest_.end(),
                              [&](const auto& m) { return m->owner == parts.weights; });
    if (found != latest_.end()) {
      std::rotate(latest_.begin(), found, found + 1);
      return latest_.front();
    }
    auto matrix = std::make_shared<Matrix>();
    matrix->owner = parts.weights;
    matrix->bytes = parts.weights->bytes + parts.zeros->bytes + parts.scales->bytes;
    latest_.insert(latest_.begin(), matrix);
    uint64_t bytes = 0;
    for (size_t i = 0; i < latest_.size(); ++i) {
      bytes += latest_[i]->bytes;
      if (i > 0 && (i >= kMost || bytes > kMostBytes)) latest_.resize(i);
    }
    return matrix;
  }

  absl::Mutex mutex_;
  std::vector<std::shared_ptr<Matrix>> latest_ ABSL_GUARDED_BY(mutex_);
};

std::shared_ptr<PackedWords> MakePackedWords() { return std::make_shared<PackedWords>(); }

namespace {

// Where what is in the words.
struct Layout {
  PackedScheme scheme;
  int64_t inputs = 0, outputs = 0, groups = 0;

  int64_t codes_a_word() const { return 32 / scheme.bits; }
  uint32_t mask() const { return (1u << scheme.bits) - 1; }
  int middle() const { return 1 << (scheme.bits - 1); }

  int Shift(int64_t output) const {
    const int place = static_cast<int>(output % codes_a_word());
    return scheme.bits * (scheme.awq ? kAwqNibble[place] : place);
  }
  int Zero(const std::vector<uint32_t>& zeros, int64_t group, int64_t output) const {
    const uint32_t word = zeros[(group * outputs + output) / codes_a_word()];
    return static_cast<int>(word >> Shift(output) & mask()) + scheme.zero_offset;
  }
  // All codes of an output.
  void Codes(const std::vector<uint32_t>& words, int64_t output, uint8_t* codes) const {
    if (scheme.awq) {
      const int64_t row_words = outputs / codes_a_word();
      const uint32_t* word = words.data() + output / codes_a_word();
      for (int64_t i = 0; i < inputs; ++i, word += row_words) {
        codes[i] = static_cast<uint8_t>(*word >> Shift(output) & mask());
      }
      return;
    }
    const uint32_t* word = words.data() + output;
    for (int64_t i = 0; i < inputs; word += outputs) {
      for (int shift = 0; shift < 32; shift += scheme.bits, ++i) {
        codes[i] = static_cast<uint8_t>(*word >> shift & mask());
      }
    }
  }
};

class PackedRows final : public RowSource {
 public:
  PackedRows(DType dtype, const Layout& layout, const Parts& parts, std::vector<int32_t> group_of,
             const RowOrder& order, std::shared_ptr<PackedWords> words)
      : RowSource(dtype, layout.outputs, layout.inputs),
        layout_(layout),
        weights_(*parts.weights),
        zeros_(*parts.zeros),
        scales_(*parts.scales),
        group_of_(std::move(group_of)),
        order_(order),
        words_(std::move(words)) {}

  absl::Status Read(int64_t first, int64_t count, char* to) const override {
    ASSIGN_OR_RETURN(const std::shared_ptr<const PackedWords::Words> words,
                     words_->Get({&weights_, &zeros_, &scales_}));
    std::vector<uint8_t> codes(cols());
    for (int64_t row = first; row < first + count; ++row, to += row_bytes()) {
      const int64_t output = order_.Stored(row);
      layout_.Codes(words->weights, output, codes.data());
      WriteRow(*words, output, codes, to);
    }
    return absl::OkStatus();
  }

 private:
  void WriteRow(const PackedWords::Words& words, int64_t output, const std::vector<uint8_t>& codes,
                char* to) const {
    if (dtype() == DType::kF16) {
      for (int64_t i = 0; i < cols(); ++i, to += sizeof(uint16_t)) {
        const int64_t group = group_of_[i];
        const uint16_t value =
            FloatToHalf(words.scales[group * rows() + output] *
                        static_cast<float>(codes[i] - layout_.Zero(words.zeros, group, output)));
        std::memcpy(to, &value, sizeof(value));
      }
      return;
    }
    const int64_t block_bytes = Traits(dtype()).block_bytes;
    for (int64_t i = 0; i < cols(); i += kBlock, to += block_bytes) {
      const int64_t group = group_of_[i];
      const uint16_t scale = FloatToHalf(words.scales[group * rows() + output]);
      std::memcpy(to, &scale, sizeof(scale));
      WriteBlock(codes.data() + i, layout_.Zero(words.zeros, group, output),
                 reinterpret_cast<uint8_t*>(to) + sizeof(scale));
    }
  }

  // What follows the scale. REQUIRES: `zero` is the middle, or the type is Q5_0.
  void WriteBlock(const uint8_t* codes, int zero, uint8_t* to) const {
    if (dtype() == DType::kQ8_0) {
      for (int64_t j = 0; j < kBlock; ++j) to[j] = static_cast<uint8_t>(codes[j] - zero);
      return;
    }
    const bool five_bits = dtype() == DType::kQ5_0;
    uint32_t high_bits = 0;
    uint8_t* const nibbles = to + (five_bits ? sizeof(high_bits) : 0);
    auto code = [&](int64_t j) { return five_bits ? codes[j] - zero + 16 : codes[j]; };
    for (int64_t j = 0; j < kBlock; ++j) high_bits |= static_cast<uint32_t>(code(j) >> 4) << j;
    for (int64_t j = 0; j < kBlock / 2; ++j) {
      nibbles[j] = static_cast<uint8_t>((code(j) & 15) | (code(j + kBlock / 2) & 15) << 4);
    }
    if (five_bits) std::memcpy(to, &high_bits, sizeof(high_bits));
  }

  const Layout layout_;
  const StoredTensor weights_, zeros_, scales_;
  const std::vector<int32_t> group_of_;
  const RowOrder order_;
  const std::shared_ptr<PackedWords> words_;
};

// The group of each input.
absl::StatusOr<std::vector<int32_t>> Groups(const Safetensors& weights, const std::string& prefix,
                                            const Layout& layout) {
  const int64_t size = layout.scheme.group_size > 0 ? layout.scheme.group_size : layout.inputs;
  std::vector<int32_t> groups(layout.inputs);
  for (int64_t i = 0; i < layout.inputs; ++i) groups[i] = static_cast<int32_t>(i / size);
  const StoredTensor* const given = layout.scheme.awq ? nullptr : weights.Find(prefix + ".g_idx");
  const int64_t most = given != nullptr ? layout.inputs : groups.back() + 1;
  if (layout.groups > most || (given == nullptr && layout.groups < most)) {
    return StoredTensorError(
        *weights.Find(prefix + ".scales"),
        absl::StrCat("wanted ", given != nullptr ? "at most " : "", most, " groups of ",
                     layout.inputs, " inputs, got ", layout.groups));
  }
  if (given == nullptr) return groups;
  RETURN_IF_ERROR(WantShape(*given, "I32", {layout.inputs}));
  ASSIGN_OR_RETURN(groups, ReadAll<int32_t>(*given));
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i] >= 0 && groups[i] < layout.groups) continue;
    return StoredTensorError(*given, absl::StrCat("input ", i, " is in group ", groups[i],
                                                  ", where there are ", layout.groups));
  }
  return groups;
}

// Whether each block of inputs is of one group.
bool InBlocks(const std::vector<int32_t>& groups) {
  if (groups.size() % kBlock != 0) return false;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i] != groups[i - i % kBlock]) return false;
  }
  return true;
}

absl::StatusOr<DType> ChooseType(const Layout& layout, const StoredTensor& zeros,
                                 const std::vector<int32_t>& groups) {
  if (!InBlocks(groups)) return DType::kF16;
  std::vector<uint32_t> words(layout.outputs / layout.codes_a_word());  // of a group
  const uint64_t group_bytes = words.size() * sizeof(words[0]);
  bool symmetric = true;
  for (int64_t group = 0; group < layout.groups && symmetric; ++group) {
    RETURN_IF_ERROR(ReadBytes(zeros, group * group_bytes, BytesOf(words)));
    for (int64_t output = 0; output < layout.outputs && symmetric; ++output) {
      symmetric = layout.Zero(words, /*group=*/0, output) == layout.middle();
    }
  }
  if (layout.scheme.bits == 8) return symmetric ? DType::kQ8_0 : DType::kF16;
  return symmetric ? DType::kQ4_0 : DType::kQ5_0;
}

absl::StatusOr<int64_t> IntMember(const Json& config, absl::string_view name, int64_t otherwise) {
  const Json* const value = config.Find(name);
  if (value == nullptr || value->is_null()) return otherwise;
  if (value->is_integer() && std::abs(value->number()) <= kMaxSide) return value->integer();
  return absl::InvalidArgumentError(absl::StrCat("quantization_config: \"", name,
                                                 "\": wanted a whole number, got ",
                                                 Excerpt(value->Dump(), 40)));
}

std::string TextMember(const Json& config, absl::string_view name) {
  const Json* const value = config.Find(name);
  return value != nullptr && value->is_string() ? absl::AsciiStrToLower(value->string()) : "";
}

}  // namespace

absl::StatusOr<PackedScheme> ReadPackedScheme(const Json& config) {
  PackedScheme scheme;
  if (!config.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("quantization_config: wanted an object, got ", Excerpt(config.Dump(), 40)));
  }
  // quantize_config.json, which is GPTQ's alone, does not say.
  const std::string method = TextMember(config, "quant_method");
  scheme.awq = method == "awq";
  if (method != "gptq" && method != "awq" && method != "") {
    return absl::UnimplementedError(absl::StrCat("quantization_config: the quant_method ",
                                                 Quoted(method),
                                                 " is not supported (gptq and awq are)"));
  }
  ASSIGN_OR_RETURN(const int64_t bits, IntMember(config, "bits", 4));
  ASSIGN_OR_RETURN(scheme.group_size, IntMember(config, "group_size", scheme.awq ? 128 : -1));
  scheme.bits = static_cast<int>(bits);
  if (bits != 4 && (bits != 8 || scheme.awq)) {
    return absl::UnimplementedError(absl::StrCat("quantization_config: ", bits,
                                                 " bits are not supported (4 are, and GPTQ's 8)"));
  }
  if (scheme.group_size != -1 && scheme.group_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "quantization_config: \"group_size\": wanted -1, or 1 and more, got ", scheme.group_size));
  }
  std::string format = TextMember(config, scheme.awq ? "version" : "checkpoint_format");
  const Json* const marlin = config.Find("is_marlin_format");
  if (marlin != nullptr && marlin->is_boolean() && marlin->boolean()) format = "marlin";
  const bool known =
      format.empty() || (scheme.awq ? format == "gemm" : format == "gptq" || format == "gptq_v2");
  if (!known) {
    return absl::UnimplementedError(
        absl::StrCat("quantization_config: the layout ", Quoted(format),
                     " is not supported (gptq, gptq_v2 and AWQ's gemm are)"));
  }
  if (!scheme.awq && format != "gptq_v2") scheme.zero_offset = 1;
  return scheme;
}

absl::StatusOr<std::unique_ptr<RowSource>> MakePackedRows(const Safetensors& weights,
                                                          const std::string& prefix,
                                                          const PackedScheme& scheme,
                                                          const RowOrder& order,
                                                          std::shared_ptr<PackedWords> words) {
  Parts parts;
  for (const auto& [name, part] :
       {std::pair(".qweight", &parts.weights), std::pair(".qzeros", &parts.zeros),
        std::pair(".scales", &parts.scales)}) {
    *part = weights.Find(prefix + name);
    if (*part != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", Quoted(prefix + name), " is missing"));
  }
  Layout layout{.scheme = scheme};
  const std::vector<uint64_t>& shape = parts.weights->shape;
  const bool in_range = shape.size() == 2 && std::max(shape[0], shape[1]) <= kMaxSide &&
                        std::min(shape[0], shape[1]) > 0 && parts.scales->shape.size() == 2 &&
                        parts.scales->shape[0] <= kMaxSide;
  if (!in_range) {
    return StoredTensorError(
        *parts.weights,
        absl::StrCat("wanted two dimensions of 1 to ", kMaxSide, ", and scales of two, got ",
                     parts.weights->Description(), " and ", parts.scales->Description()));
  }
  const int64_t codes = layout.codes_a_word();
  layout.inputs = static_cast<int64_t>(shape[0]) * (scheme.awq ? 1 : codes);
  layout.outputs = static_cast<int64_t>(shape[1]) * (scheme.awq ? codes : 1);
  layout.groups = static_cast<int64_t>(parts.scales->shape[0]);
  if (layout.inputs > kMaxCols) {
    return StoredTensorError(
        *parts.weights, absl::StrCat("wanted at most ", kMaxCols, " inputs, got ", layout.inputs));
  }
  if (layout.outputs % codes != 0) {
    return StoredTensorError(*parts.weights,
                             absl::StrCat("its ", layout.outputs, " outputs are no whole words"));
  }
  RETURN_IF_ERROR(WantShape(*parts.weights, "I32",
                            {static_cast<int64_t>(shape[0]), static_cast<int64_t>(shape[1])}));
  RETURN_IF_ERROR(WantShape(*parts.zeros, "I32", {layout.groups, layout.outputs / codes}));
  RETURN_IF_ERROR(WantShape(*parts.scales, "F16, BF16 or F32", {layout.groups, layout.outputs}));
  if (order.head_dim > 0 && layout.outputs % order.head_dim != 0) {
    return StoredTensorError(
        *parts.weights,
        absl::StrCat("its ", layout.outputs, " outputs are not whole heads of ", order.head_dim));
  }
  ASSIGN_OR_RETURN(std::vector<int32_t> groups, Groups(weights, prefix, layout));
  ASSIGN_OR_RETURN(const DType dtype, ChooseType(layout, *parts.zeros, groups));
  return std::make_unique<PackedRows>(dtype, layout, parts, std::move(groups), order,
                                      std::move(words));
}

}  // namespace lm
