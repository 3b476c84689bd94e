#include "engine/gguf/metadata_reader.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/checked_math.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/message.h"

namespace lm {
namespace {

// The value types' numbers in the file.
enum ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

constexpr uint64_t kMaxKeyBytes = 65535;  // the format's own limit
// The least that a pair takes in the file: a length, one byte of key, a type, one byte of value.
constexpr uint64_t kMinPairBytes = 8 + 1 + 4 + 1;
// What a pair costs in the hash map, whatever its value (slots that stay empty included).
constexpr uint64_t kPairOverheadBytes = 192;

// What is left of one of the limits in the header.
class Budget {
 public:
  Budget(absl::string_view what, uint64_t bytes) : what_(what), limit_(bytes), left_(bytes) {}

  uint64_t left() const { return left_; }

  absl::Status Take(uint64_t count, uint64_t bytes_each) {
    std::optional<uint64_t> bytes = CheckedMul(count, bytes_each);
    if (!bytes || *bytes > left_) {
      return absl::InvalidArgumentError(absl::StrCat(what_, " would take more than ", limit_ >> 20,
                                                     " MiB: ", count, " values of ", bytes_each,
                                                     " bytes where ", left_, " bytes are left"));
    }
    left_ -= *bytes;
    return absl::OkStatus();
  }

 private:
  absl::string_view what_;
  uint64_t limit_;
  uint64_t left_;
};

absl::Status BadType(uint32_t type) {
  return absl::InvalidArgumentError(
      absl::StrCat("value type ", type, " is not one of GGUF's (0 to 12)"));
}

// Reads one string, paid from `budget` where it does not fit in std::string itself.
absl::StatusOr<std::string> ReadStringValue(Budget* budget, ByteCursor* cursor) {
  ASSIGN_OR_RETURN(std::string text, cursor->ReadString(budget->left()));
  if (text.size() >= sizeof(std::string) / 2) RETURN_IF_ERROR(budget->Take(1, text.size() + 32));
  return text;
}

absl::StatusOr<bool> ReadBool(ByteCursor* cursor) {
  ASSIGN_OR_RETURN(uint8_t byte, cursor->ReadNumber<uint8_t>());
  if (byte > 1) {
    return absl::InvalidArgumentError(absl::StrCat("a bool of value ", byte, " at offset ",
                                                   cursor->position() - 1, ", wanted 0 or 1"));
  }
  return byte == 1;
}

// The number T of the file as the Wide of MetadataValue.
template <typename T, typename Wide>
absl::StatusOr<MetadataValue> ReadNumberValue(ByteCursor* cursor) {
  ASSIGN_OR_RETURN(T value, cursor->ReadNumber<T>());
  return MetadataValue(static_cast<Wide>(value));
}

absl::StatusOr<MetadataValue> ReadScalar(uint32_t type, Budget* budget, ByteCursor* cursor) {
  switch (type) {
    case kUint8:
      return ReadNumberValue<uint8_t, uint64_t>(cursor);
    case kInt8:
      return ReadNumberValue<int8_t, int64_t>(cursor);
    case kUint16:
      return ReadNumberValue<uint16_t, uint64_t>(cursor);
    case kInt16:
      return ReadNumberValue<int16_t, int64_t>(cursor);
    case kUint32:
      return ReadNumberValue<uint32_t, uint64_t>(cursor);
    case kInt32:
      return ReadNumberValue<int32_t, int64_t>(cursor);
    case kFloat32:
      return ReadNumberValue<float, double>(cursor);
    case kBool:
      return ReadBool(cursor);
    case kString:
      return ReadStringValue(budget, cursor);
    case kUint64:
      return ReadNumberValue<uint64_t, uint64_t>(cursor);
    case kInt64:
      return ReadNumberValue<int64_t, int64_t>(cursor);
    case kFloat64:
      return ReadNumberValue<double, double>(cursor);
    default:
      return BadType(type);
  }
}

template <typename T, typename Wide>
absl::StatusOr<MetadataValue> ReadNumbers(uint64_t count, Budget* budget, ByteCursor* cursor) {
  if (count > cursor->remaining() / sizeof(T)) {
    return absl::InvalidArgumentError(
        absl::StrCat("an array of ", count, " values of ", sizeof(T), " bytes at offset ",
                     cursor->position(), ", where ", cursor->remaining(), " bytes are left"));
  }
  RETURN_IF_ERROR(budget->Take(count, sizeof(Wide)));
  std::vector<Wide> values;
  values.reserve(count);
  T chunk[1024];
  while (values.size() < count) {
    size_t n = std::min<uint64_t>(std::size(chunk), count - values.size());
    RETURN_IF_ERROR(
        cursor->ReadBytes(absl::MakeSpan(reinterpret_cast<char*>(chunk), n * sizeof(T))));
    values.insert(values.end(), chunk, chunk + n);
  }
  return MetadataValue(std::move(values));
}

absl::StatusOr<MetadataValue> ReadBools(uint64_t count, Budget* budget, ByteCursor* cursor) {
  RETURN_IF_ERROR(cursor->Require(count));
  RETURN_IF_ERROR(budget->Take(count, 1));
  std::vector<bool> values;
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(bool value, ReadBool(cursor));
    values.push_back(value);
  }
  return MetadataValue(std::move(values));
}

absl::StatusOr<MetadataValue> ReadStrings(uint64_t count, Budget* budget, ByteCursor* cursor) {
  if (count > cursor->remaining() / sizeof(uint64_t)) {  // each begins with its length
    return absl::InvalidArgumentError(absl::StrCat("an array of ", count, " strings at offset ",
                                                   cursor->position(), ", where ",
                                                   cursor->remaining(), " bytes are left"));
  }
  RETURN_IF_ERROR(budget->Take(count, sizeof(std::string)));
  std::vector<std::string> values;
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    absl::StatusOr<std::string> value = ReadStringValue(budget, cursor);
    if (!value.ok()) return InContext(absl::StrCat("element ", i), value.status());
    values.push_back(*std::move(value));
  }
  return MetadataValue(std::move(values));
}

absl::StatusOr<MetadataValue> ReadArray(Budget* budget, ByteCursor* cursor) {
  ASSIGN_OR_RETURN(uint32_t type, cursor->ReadNumber<uint32_t>());
  ASSIGN_OR_RETURN(uint64_t count, cursor->ReadNumber<uint64_t>());
  switch (type) {
    case kUint8:
      return ReadNumbers<uint8_t, uint64_t>(count, budget, cursor);
    case kInt8:
      return ReadNumbers<int8_t, int64_t>(count, budget, cursor);
    case kUint16:
      return ReadNumbers<uint16_t, uint64_t>(count, budget, cursor);
    case kInt16:
      return ReadNumbers<int16_t, int64_t>(count, budget, cursor);
    case kUint32:
      return ReadNumbers<uint32_t, uint64_t>(count, budget, cursor);
    case kInt32:
      return ReadNumbers<int32_t, int64_t>(count, budget, cursor);
    case kFloat32:
      return ReadNumbers<float, double>(count, budget, cursor);
    case kBool:
      return ReadBools(count, budget, cursor);
    case kString:
      return ReadStrings(count, budget, cursor);
    case kArray:
      return absl::InvalidArgumentError("arrays of arrays are not supported");
    case kUint64:
      return ReadNumbers<uint64_t, uint64_t>(count, budget, cursor);
    case kInt64:
      return ReadNumbers<int64_t, int64_t>(count, budget, cursor);
    case kFloat64:
      return ReadNumbers<double, double>(count, budget, cursor);
    default:
      return BadType(type);
  }
}

absl::StatusOr<MetadataValue> ReadValue(absl::string_view key, Budget* metadata, Budget* vocabulary,
                                        ByteCursor* cursor) {
  ASSIGN_OR_RETURN(uint32_t type, cursor->ReadNumber<uint32_t>());
  if (type != kArray) return ReadScalar(type, metadata, cursor);
  return ReadArray(absl::StartsWith(key, "tokenizer.") ? vocabulary : metadata, cursor);
}

absl::StatusOr<std::string> ReadKey(Budget* budget, ByteCursor* cursor) {
  ASSIGN_OR_RETURN(std::string key, cursor->ReadString(kMaxKeyBytes));
  if (key.empty()) return absl::InvalidArgumentError("the key is empty");
  RETURN_IF_ERROR(budget->Take(1, key.size() + kPairOverheadBytes));
  return key;
}

}  // namespace

absl::StatusOr<Metadata> ReadMetadata(uint64_t count, ByteCursor* cursor) {
  if (count > cursor->remaining() / kMinPairBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the header declares ", count,
                                                   " metadata pairs, where ", cursor->remaining(),
                                                   " bytes are left"));
  }
  Budget metadata_budget("metadata", kMaxMetadataBytes);
  Budget vocabulary_budget("the vocabulary", kMaxVocabularyBytes);
  Metadata metadata;
  for (uint64_t i = 0; i < count; ++i) {
    absl::StatusOr<std::string> key = ReadKey(&metadata_budget, cursor);
    if (!key.ok()) return InContext(absl::StrCat("metadata pair ", i), key.status());
    if (metadata.Has(*key)) {
      return absl::InvalidArgumentError(absl::StrCat("key ", Quoted(*key), " appears twice"));
    }
    absl::StatusOr<MetadataValue> value =
        ReadValue(*key, &metadata_budget, &vocabulary_budget, cursor);
    if (!value.ok()) return InContext(absl::StrCat("key ", Quoted(*key)), value.status());
    metadata.Insert(*std::move(key), *std::move(value));
  }
  return metadata;
}

}  // namespace lm
