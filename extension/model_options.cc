#include "extension/model_options.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

using nlohmann::json;

std::string Shown(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

template <typename Integer>
absl::Status ReadCount(const std::string& key, const json& value, Integer* out) {
  constexpr uint64_t kMax = std::numeric_limits<Integer>::max();
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "options: ", key, " must be a whole number from 0 to ", kMax, ", got ", Shown(value)));
  }
  *out = static_cast<Integer>(value.get<uint64_t>());
  return absl::OkStatus();
}

}  // namespace

absl::Status OverlayModelOptions(absl::string_view text, ModelOptions* options) {
  json object = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return absl::InvalidArgumentError("options must be a JSON object such as {\"threads\": 4}");
  }
  for (const auto& [key, value] : object.items()) {
    if (key == "device") {
      if (!value.is_string()) {
        return absl::InvalidArgumentError(
            absl::StrCat("options: device must be a string, got ", Shown(value)));
      }
      options->device = value.get<std::string>();
    } else if (key == "threads") {
      RETURN_IF_ERROR(ReadCount(key, value, &options->threads));
    } else if (key == "kv_bytes") {
      RETURN_IF_ERROR(ReadCount(key, value, &options->kv_bytes));
    } else if (key == "context_length") {
      RETURN_IF_ERROR(ReadCount(key, value, &options->context_length));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("options: unknown key '", key,
                       "' (device, threads, kv_bytes and context_length are known)"));
    }
  }
  return absl::OkStatus();
}

bool SameOptions(const ModelOptions& a, const ModelOptions& b) {
  return a.device == b.device && a.threads == b.threads && a.kv_bytes == b.kv_bytes &&
         a.context_length == b.context_length;
}

}  // namespace lm
