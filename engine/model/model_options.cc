#include "engine/model/model_options.h"

#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/max_threads.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr std::pair<absl::string_view, DType> kKvTypes[] = {
    {"f16", DType::kF16}, {"int8", DType::kI8}, {"f32", DType::kF32}};

template <typename Integer>
absl::Status ReadCount(const std::string& key, const Json& value, Integer* out,
                       uint64_t most = std::numeric_limits<Integer>::max()) {
  if (!value.is_unsigned() || value.unsigned_integer() > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        "options: ", key, " must be a whole number from 0 to ", most, ", got ", value.Dump()));
  }
  *out = static_cast<Integer>(value.unsigned_integer());
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadText(const std::string& key, const Json& value) {
  if (value.is_string()) return value.string();
  return absl::InvalidArgumentError(
      absl::StrCat("options: ", key, " must be a string, got ", value.Dump()));
}

}  // namespace

absl::StatusOr<DType> ParseKvType(absl::string_view name) {
  for (const auto& [known, type] : kKvTypes) {
    if (known == name) return type;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("kv_type must be 'f16', 'int8' or 'f32', got '", name, "'"));
}

absl::string_view KvTypeName(DType type) {
  for (const auto& [name, known] : kKvTypes) {
    if (known == type) return name;
  }
  return "";
}

absl::Status ParseModelOptions(absl::string_view text, ModelOptions* options) {
  const std::optional<Json> object = Json::Parse(text);
  if (!object || !object->is_object()) {
    return absl::InvalidArgumentError("options must be a JSON object such as {\"threads\": 4}");
  }
  for (const auto& [key, value] : object->members()) {
    if (key == "device") {
      ASSIGN_OR_RETURN(options->device, ReadText(key, value));
    } else if (key == "threads") {
      RETURN_IF_ERROR(ReadCount(key, value, &options->threads, kMaxThreads));
    } else if (key == "kv_bytes") {
      RETURN_IF_ERROR(ReadCount(key, value, &options->kv_bytes));
    } else if (key == "kv_type") {
      ASSIGN_OR_RETURN(std::string name, ReadText(key, value));
      ASSIGN_OR_RETURN(options->kv_type, ParseKvType(name));
    } else if (key == "context_length") {
      RETURN_IF_ERROR(ReadCount(key, value, &options->context_length));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("options: unknown key '", key,
                       "' (device, threads, kv_bytes, kv_type and context_length are known)"));
    }
  }
  return absl::OkStatus();
}

}  // namespace lm
