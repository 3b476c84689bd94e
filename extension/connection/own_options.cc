#include "extension/connection/own_options.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/generation_options.h"
#include "extension/connection/settings.h"
#include "extension/connection/unknown_option.h"

namespace lm {
namespace {

// Options of one function each that a prompt would hardly have for keys.
constexpr absl::string_view kHardlyWords[] = {"dimensions", "embed_model", "escalate",
                                              "multi",      "normalize",   "part_tokens",
                                              "pooling",    "scores",      "threshold"};

constexpr int kDeepest = 100;  // to write an object back as text takes stack for each level

absl::Status WrongType(const std::string& key, absl::string_view wanted, const Json& value) {
  return absl::InvalidArgumentError(absl::StrCat(key, " must be ", wanted, ", got ", value.Dump()));
}

}  // namespace

absl::Status CheckNotOptions(absl::string_view text, absl::string_view what) {
  if (!absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "{")) return absl::OkStatus();
  int deepest = 0;
  const std::optional<Json> object = Json::Parse(text, &deepest);
  if (!object || !object->is_object() || object->size() == 0) return absl::OkStatus();
  for (const auto& [name, value] : object->members()) {
    const bool setting =
        std::find(Settings::kKeys.begin(), Settings::kKeys.end(), name) != Settings::kKeys.end();
    const bool of_function =
        std::find(std::begin(kHardlyWords), std::end(kHardlyWords), name) != std::end(kHardlyWords);
    if (!setting && !of_function && !IsGenerationOption(name)) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "these are options in the place of `", what, "`: {'", object->members().front().first,
      "': ...}; options are the last argument, after ", what, " (NULL for none)"));
}

absl::StatusOr<OwnOptions> OwnOptions::Take(const std::optional<std::string>& text,
                                            std::initializer_list<absl::string_view> keys) {
  OwnOptions own;
  own.rest_ = text;
  for (absl::string_view key : keys) own.keys_.emplace_back(key);
  if (!text.has_value()) return own;
  int deepest = 0;
  const std::optional<Json> object = Json::Parse(*text, &deepest);
  if (deepest > kDeepest) {
    return absl::InvalidArgumentError(
        absl::StrCat("options are nested ", deepest, " deep, ", kDeepest, " is the most"));
  }
  if (!object || !object->is_object()) return own;
  Json rest = Json::MakeObject();
  for (const auto& [name, value] : object->members()) {
    const bool is_own = std::find(keys.begin(), keys.end(), name) != keys.end();
    if (is_own && own.taken_.Has(name)) {
      return absl::InvalidArgumentError(absl::StrCat("option '", name, "' is there twice"));
    }
    (is_own ? own.taken_ : rest).Add(name, value);
  }
  // Written anew only where it must be, so that messages count the user's own bytes.
  if (own.taken_.size() > 0) own.rest_ = rest.Dump();
  return own;
}

absl::StatusOr<OwnOptions> OwnOptions::TakeOfCall(const std::optional<std::string>& json,
                                                  std::initializer_list<absl::string_view> keys) {
  ASSIGN_OR_RETURN(OwnOptions own, Take(json, keys));
  const std::optional<Json> rest = own.rest_.has_value() ? Json::Parse(*own.rest_) : std::nullopt;
  if (!rest || !rest->is_object()) return own;
  for (const auto& [name, value] : rest->members()) {
    if (IsUnknownOption(name)) return UnknownOptionOfCall(name, own.keys_);
  }
  return own;
}

absl::Status OwnOptions::CheckNoOthers() const {
  if (!rest_.has_value()) return absl::OkStatus();
  const std::optional<Json> object = Json::Parse(*rest_);
  if (!object || !object->is_object()) {
    return absl::InvalidArgumentError("options must be a JSON object, such as {\"chunk\": 64}");
  }
  if (object->size() == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("unknown option '",
                                                 object->members().front().first, "'; ",
                                                 absl::StrJoin(keys_, ", "), " are known"));
}

const Json* OwnOptions::Find(const std::string& key) const {
  const Json* found = taken_.Find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

absl::StatusOr<int64_t> OwnOptions::Integer(const std::string& key, int64_t otherwise,
                                            int64_t least, int64_t most) const {
  const Json* value = Find(key);
  if (value == nullptr) return otherwise;
  const std::string wanted = absl::StrCat("a whole number from ", least, " to ", most);
  if (!value->is_integer()) return WrongType(key, wanted, *value);
  const bool huge = value->is_unsigned() && value->unsigned_integer() > INT64_MAX;
  if (huge || value->integer() < least || value->integer() > most) {
    return WrongType(key, wanted, *value);
  }
  return value->integer();
}

absl::StatusOr<double> OwnOptions::Number(const std::string& key, double otherwise, double least,
                                          double most) const {
  const Json* value = Find(key);
  if (value == nullptr) return otherwise;
  const bool fits = value->is_number() && value->number() >= least && value->number() <= most;
  if (fits) return value->number();
  return WrongType(key, absl::StrCat("a number from ", least, " to ", most), *value);
}

absl::StatusOr<bool> OwnOptions::Bool(const std::string& key, bool otherwise) const {
  const Json* value = Find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) return WrongType(key, "true or false", *value);
  return value->boolean();
}

absl::StatusOr<std::optional<double>> OwnOptions::Amount(const std::string& key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !(value->number() >= 0)) {
    return WrongType(key, "a number that is not negative", *value);
  }
  return value->number();
}

absl::StatusOr<std::optional<std::string>> OwnOptions::Text(const std::string& key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return WrongType(key, "a string", *value);
  return value->string();
}

}  // namespace lm
