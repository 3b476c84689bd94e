#include "engine/model/key_reader.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
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
  if (!std::isfinite(value) || value <= 0) {
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
  if (!std::isfinite(value) || value < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", Key(name), "' must be a finite number >= 0, got ", value));
  }
  return value;
}

absl::Status KeyReader::CheckTheOthers() const {
  return CheckOtherKeys(metadata_, architecture_, asked_);
}

}  // namespace lm
