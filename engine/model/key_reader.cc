#include "engine/model/key_reader.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/base/variant.h"
#include "engine/model/other_keys.h"

namespace lm {

std::string KeyReader::Key(absl::string_view name) const {
  return absl::StrCat(architecture_, ".", name);
}

std::string KeyReader::Asked(absl::string_view name) {
  std::string key = Key(name);
  asked_.insert(key);
  return key;
}

bool KeyReader::Has(absl::string_view name) { return metadata_.Has(Asked(name)); }

absl::StatusOr<std::string> KeyReader::String(absl::string_view name) {
  return metadata_.GetString(Asked(name));
}

absl::StatusOr<int64_t> KeyReader::Int(absl::string_view name, int64_t low, int64_t high) {
  ASSIGN_OR_RETURN(int64_t value, metadata_.GetInt(Asked(name)));
  if (value < low || value > high) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", Key(name), "' must be ", low, " to ", high, ", got ", value));
  }
  return value;
}

absl::StatusOr<int64_t> KeyReader::IntOr(absl::string_view name, int64_t low, int64_t high,
                                         int64_t otherwise) {
  if (!Has(name)) return otherwise;
  return Int(name, low, high);
}

absl::StatusOr<double> KeyReader::Positive(absl::string_view name) {
  ASSIGN_OR_RETURN(double value, metadata_.GetFloat(Asked(name)));
  if (!(static_cast<float>(value) > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", Key(name), "' must be a finite number > 0, got ", value));
  }
  return value;
}

absl::StatusOr<double> KeyReader::PositiveOr(absl::string_view name, double otherwise) {
  if (!Has(name)) return otherwise;
  return Positive(name);
}

absl::StatusOr<double> KeyReader::NotNegativeOr(absl::string_view name, double otherwise) {
  if (!Has(name)) return otherwise;
  ASSIGN_OR_RETURN(double value, metadata_.GetFloat(Asked(name)));
  if (value < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", Key(name), "' must be a finite number >= 0, got ", value));
  }
  return value;
}

bool KeyReader::IsArray(absl::string_view name) {
  const auto found = metadata_.values().find(Asked(name));
  return found != metadata_.values().end() &&
         (std::holds_alternative<std::vector<bool>>(found->second) ||
          std::holds_alternative<std::vector<int64_t>>(found->second) ||
          std::holds_alternative<std::vector<uint64_t>>(found->second));
}

absl::StatusOr<std::vector<bool>> KeyReader::Bools(absl::string_view name, int64_t count,
                                                   int64_t least) {
  std::vector<bool> values;
  if (!Has(name)) return values;
  const MetadataValue& value = metadata_.values().find(Key(name))->second;
  if (const auto* bools = std::get_if<std::vector<bool>>(&value)) {
    values = *bools;
  } else {
    ASSIGN_OR_RETURN(const std::vector<int64_t> ints, metadata_.GetInts(Key(name)));
    for (int64_t i : ints) values.push_back(i != 0);
  }
  if (static_cast<int64_t>(values.size()) == least) values.resize(count);
  if (static_cast<int64_t>(values.size()) == count) return values;
  return absl::InvalidArgumentError(absl::StrCat("'", Key(name), "' must have a value for each of ",
                                                 count, " layers, got ", values.size()));
}

absl::StatusOr<bool> KeyReader::BoolOr(absl::string_view name, bool otherwise) {
  if (!Has(name)) return otherwise;
  const MetadataValue& value = metadata_.values().find(Key(name))->second;
  if (const bool* flag = std::get_if<bool>(&value)) return *flag;
  ASSIGN_OR_RETURN(const int64_t number, Int(name, 0, 1));
  return number != 0;
}

absl::StatusOr<std::vector<int64_t>> KeyReader::IntsOr(absl::string_view name, int64_t count,
                                                       int64_t low, int64_t high, int64_t otherwise,
                                                       absl::string_view things) {
  if (!IsArray(name)) {
    ASSIGN_OR_RETURN(const int64_t value, IntOr(name, low, high, otherwise));
    return std::vector<int64_t>(count, value);
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> values, metadata_.GetInts(Key(name)));
  if (static_cast<int64_t>(values.size()) != count) {
    return absl::InvalidArgumentError(absl::StrCat("'", Key(name),
                                                   "' must have a value for each of ", count, " ",
                                                   things, ", got ", values.size()));
  }
  for (int64_t value : values) {
    if (value >= low && value <= high) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", Key(name), "' must be ", low, " to ", high, ", got ", value));
  }
  return values;
}

absl::StatusOr<std::vector<int64_t>> KeyReader::FirstInts(absl::string_view name, int64_t count,
                                                          int64_t low, int64_t high) {
  ASSIGN_OR_RETURN(std::vector<int64_t> values, metadata_.GetInts(Asked(name)));
  const auto length = static_cast<int64_t>(values.size());
  if (length > count) values.resize(count);
  for (int64_t value : values) {
    if (length >= count && value >= low && value <= high) continue;
    return absl::InvalidArgumentError(absl::StrCat("'", Key(name), "' must have ", count,
                                                   " values or more, of ", low, " to ", high,
                                                   ", got ", length, ", of them ", value));
  }
  return values;
}

absl::StatusOr<std::vector<float>> KeyReader::Floats(absl::string_view name, int64_t count) {
  if (!Has(name)) return std::vector<float>();
  const MetadataValue& value = metadata_.values().find(Key(name))->second;
  const auto* values = std::get_if<std::vector<double>>(&value);
  if (values == nullptr) {
    ASSIGN_OR_RETURN(const double one, Float(name));
    return std::vector<float>(count, static_cast<float>(one));
  }
  if (static_cast<int64_t>(values->size()) == count)
    return std::vector<float>(values->begin(), values->end());
  return absl::InvalidArgumentError(absl::StrCat("'", Key(name), "' must have a value for each of ",
                                                 count, " layers, got ", values->size()));
}

absl::StatusOr<std::vector<float>> KeyReader::NotNegatives(absl::string_view name, int64_t count) {
  ASSIGN_OR_RETURN(std::vector<float> values, Floats(name, count));
  for (const float value : values) {
    if (std::isfinite(value) && value >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", Key(name), "' must be finite numbers >= 0, got ", value));
  }
  values.resize(count);
  return values;
}

absl::Status KeyReader::CheckTheOthers() const {
  return CheckOtherKeys(metadata_, architecture_, asked_);
}

}  // namespace lm
