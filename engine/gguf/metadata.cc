#include "engine/gguf/metadata.h"

#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/message.h"

namespace lm {
namespace {

constexpr uint64_t kMaxInt = std::numeric_limits<int64_t>::max();

// "a string", "an array of 5 integers", ...
std::string Describe(const MetadataValue& value) {
  auto array = [](size_t n, absl::string_view what) {
    return absl::StrCat("an array of ", n, " ", what);
  };
  return std::visit(
      [&](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, bool>) return "a bool";
        if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t>) {
          return absl::StrCat("the integer ", v);
        }
        if constexpr (std::is_same_v<T, double>) return absl::StrCat("the float ", v);
        if constexpr (std::is_same_v<T, std::string>) return "a string";
        if constexpr (std::is_same_v<T, std::vector<bool>>) return array(v.size(), "bools");
        if constexpr (std::is_same_v<T, std::vector<int64_t>> ||
                      std::is_same_v<T, std::vector<uint64_t>>) {
          return array(v.size(), "integers");
        }
        if constexpr (std::is_same_v<T, std::vector<double>>) return array(v.size(), "floats");
        if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          return array(v.size(), "strings");
        }
      },
      value);
}

absl::Status NoSuchKey(absl::string_view key) {
  return absl::NotFoundError(absl::StrCat("key ", Quoted(key), " is not in the file"));
}

absl::Status WrongType(absl::string_view key, absl::string_view wanted, const MetadataValue& got) {
  return absl::InvalidArgumentError(
      absl::StrCat("key ", Quoted(key), ": wanted ", wanted, ", the file has ", Describe(got)));
}

// A file may have them in 64 bits; what is computed with them has 32. NaN is none.
bool IsFloat(double value) { return std::abs(value) <= std::numeric_limits<float>::max(); }

// The value of `key`, which must be a T.
template <typename T>
absl::StatusOr<const T*> Find(const HashMap<std::string, MetadataValue>& values,
                              absl::string_view key, absl::string_view wanted) {
  auto it = values.find(key);
  if (it == values.end()) return NoSuchKey(key);
  const T* value = std::get_if<T>(&it->second);
  if (value == nullptr) return WrongType(key, wanted, it->second);
  return value;
}

}  // namespace

absl::StatusOr<std::string> Metadata::GetString(absl::string_view key) const {
  ASSIGN_OR_RETURN(const std::string* value, Find<std::string>(values_, key, "a string"));
  return *value;
}

absl::StatusOr<int64_t> Metadata::GetInt(absl::string_view key) const {
  constexpr absl::string_view kWanted = "an integer of at most 2^63 - 1";
  auto it = values_.find(key);
  if (it == values_.end()) return NoSuchKey(key);
  if (const int64_t* value = std::get_if<int64_t>(&it->second)) return *value;
  const uint64_t* value = std::get_if<uint64_t>(&it->second);
  if (value == nullptr) return WrongType(key, "an integer", it->second);
  if (*value > kMaxInt) return WrongType(key, kWanted, it->second);
  return static_cast<int64_t>(*value);
}

absl::StatusOr<double> Metadata::GetFloat(absl::string_view key) const {
  ASSIGN_OR_RETURN(const double* value, Find<double>(values_, key, "a float"));
  if (!IsFloat(*value)) return WrongType(key, "a finite 32-bit float", *value);
  return *value;
}

absl::StatusOr<bool> Metadata::GetBool(absl::string_view key) const {
  ASSIGN_OR_RETURN(const bool* value, Find<bool>(values_, key, "a bool"));
  return *value;
}

absl::StatusOr<absl::Span<const std::string>> Metadata::GetStrings(absl::string_view key) const {
  ASSIGN_OR_RETURN(const std::vector<std::string>* value,
                   Find<std::vector<std::string>>(values_, key, "an array of strings"));
  return absl::MakeConstSpan(*value);
}

absl::StatusOr<std::vector<int64_t>> Metadata::GetInts(absl::string_view key) const {
  auto it = values_.find(key);
  if (it == values_.end()) return NoSuchKey(key);
  if (const auto* values = std::get_if<std::vector<int64_t>>(&it->second)) return *values;
  const auto* values = std::get_if<std::vector<uint64_t>>(&it->second);
  if (values == nullptr) return WrongType(key, "an array of integers", it->second);
  for (size_t i = 0; i < values->size(); ++i) {
    if ((*values)[i] > kMaxInt) {
      return absl::InvalidArgumentError(absl::StrCat("key ", Quoted(key), ": element ", i, " is ",
                                                     (*values)[i], ", at most 2^63 - 1 wanted"));
    }
  }
  return std::vector<int64_t>(values->begin(), values->end());
}

absl::StatusOr<std::vector<float>> Metadata::GetFloats(absl::string_view key) const {
  ASSIGN_OR_RETURN(const std::vector<double>* values,
                   Find<std::vector<double>>(values_, key, "an array of floats"));
  std::vector<float> floats(values->size());
  for (size_t i = 0; i < floats.size(); ++i) {
    double value = (*values)[i];
    if (!IsFloat(value)) {
      return absl::InvalidArgumentError(absl::StrCat("key ", Quoted(key), ": element ", i, " is ",
                                                     value, ", wanted a finite 32-bit float"));
    }
    floats[i] = static_cast<float>(value);
  }
  return floats;
}

bool Metadata::Insert(std::string key, MetadataValue value) {
  return values_.try_emplace(std::move(key), std::move(value)).second;
}

void Metadata::Set(std::string key, MetadataValue value) {
  values_.insert_or_assign(std::move(key), std::move(value));
}

void Metadata::Rename(const std::string& from, std::string to) {
  if (Has(to) || !Has(from)) return;
  auto pair = values_.extract(from);
  pair.key() = std::move(to);
  values_.insert(std::move(pair));
}

void Metadata::CutArray(absl::string_view key, size_t size) {
  const auto found = values_.find(key);
  if (found == values_.end()) return;
  std::visit(
      [size](auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (!std::is_arithmetic_v<T> && !std::is_same_v<T, std::string>) {
          if (value.size() > size) value.resize(size);
        }
      },
      found->second);
}

}  // namespace lm
