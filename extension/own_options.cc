#include "extension/own_options.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lm {
namespace {

using nlohmann::json;

constexpr int kDeepest = 100;  // to write an object back as text takes stack for each level

absl::Status WrongType(const std::string& key, absl::string_view wanted, const json& value) {
  return absl::InvalidArgumentError(
      absl::StrCat(key, " must be ", wanted, ", got ",
                   value.dump(-1, ' ', false, json::error_handler_t::replace)));
}

}  // namespace

absl::StatusOr<OwnOptions> OwnOptions::Take(const std::optional<std::string>& text,
                                            std::initializer_list<absl::string_view> keys) {
  OwnOptions own;
  own.rest_ = text;
  for (absl::string_view key : keys) own.keys_.emplace_back(key);
  if (!text.has_value()) return own;
  int deepest = 0;
  std::set<std::string> names;
  std::string twice;
  auto watch = [&](int depth, json::parse_event_t event, json& value) {
    deepest = std::max(deepest, depth);
    if (event == json::parse_event_t::key && depth == 1) {
      const auto& name = value.get_ref<const std::string&>();
      if (!names.insert(name).second) twice = name;
    }
    return true;
  };
  json object = json::parse(*text, watch, /*allow_exceptions=*/false);
  if (!object.is_object()) return own;
  if (deepest > kDeepest) {
    return absl::InvalidArgumentError(
        absl::StrCat("options are nested ", deepest, " deep, ", kDeepest, " is the most"));
  }
  for (absl::string_view view : keys) {
    const std::string key(view);
    auto found = object.find(key);
    if (found == object.end()) continue;
    if (twice == key) {
      return absl::InvalidArgumentError(absl::StrCat("option '", key, "' is there twice"));
    }
    own.taken_[key] = std::move(*found);
    object.erase(found);
  }
  // Written anew only where it must be, so that messages count the user's own bytes.
  if (!own.taken_.empty()) own.rest_ = object.dump();
  return own;
}

absl::Status OwnOptions::CheckNoOthers() const {
  if (!rest_.has_value()) return absl::OkStatus();
  const json object = json::parse(*rest_, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return absl::InvalidArgumentError("options must be a JSON object, such as {\"chunk\": 64}");
  }
  if (object.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("unknown option '", object.begin().key(), "'; ",
                                                 absl::StrJoin(keys_, ", "), " are known"));
}

const json* OwnOptions::Find(const std::string& key) const {
  auto found = taken_.find(key);
  return found == taken_.end() || found->is_null() ? nullptr : &*found;
}

absl::StatusOr<int64_t> OwnOptions::Integer(const std::string& key, int64_t otherwise,
                                            int64_t least, int64_t most) const {
  const json* value = Find(key);
  if (value == nullptr) return otherwise;
  const std::string wanted = absl::StrCat("a whole number from ", least, " to ", most);
  if (!value->is_number_integer()) return WrongType(key, wanted, *value);
  const bool huge = value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX;
  if (huge || value->get<int64_t>() < least || value->get<int64_t>() > most) {
    return WrongType(key, wanted, *value);
  }
  return value->get<int64_t>();
}

absl::StatusOr<bool> OwnOptions::Bool(const std::string& key, bool otherwise) const {
  const json* value = Find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) return WrongType(key, "true or false", *value);
  return value->get<bool>();
}

absl::StatusOr<std::optional<std::string>> OwnOptions::Text(const std::string& key) const {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return WrongType(key, "a string", *value);
  return value->get<std::string>();
}

}  // namespace lm
