#include "engine/model/model_options.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/json.h"
#include "engine/base/max_threads.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/model/adapter_scale.h"

namespace lm {
namespace {

constexpr std::pair<absl::string_view, std::optional<DType>> kKvTypes[] = {{"auto", std::nullopt},
                                                                           {"f16", DType::kF16},
                                                                           {"int16", DType::kI16},
                                                                           {"int8", DType::kI8},
                                                                           {"f32", DType::kF32}};

constexpr std::pair<absl::string_view, PoolingType> kPoolings[] = {{"mean", PoolingType::kMean},
                                                                   {"last", PoolingType::kLast},
                                                                   {"cls", PoolingType::kFirst},
                                                                   {"rank", PoolingType::kRank}};

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

absl::StatusOr<std::string> ReadOption(const std::string& key, const Json& value) {
  if (value.is_string()) return value.string();
  return absl::InvalidArgumentError(
      absl::StrCat("options: ", key, " must be a string, got ", value.Dump()));
}

absl::StatusOr<PoolingType> ReadPooling(const Json& value) {
  for (const auto& [name, pooling] : kPoolings) {
    if (value.is_string() && value.string() == name) return pooling;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("options: pooling must be 'mean', 'last', 'cls' or 'rank', got ", value.Dump()));
}

// {"name": ..., "path": ..., "scale": 1.0}
absl::StatusOr<AdapterOption> ReadAdapter(const Json& value) {
  AdapterOption adapter;
  for (const auto& [key, member] : value.members()) {
    if (key == "name") {
      ASSIGN_OR_RETURN(adapter.name, ReadOption("name of lora", member));
    } else if (key == "path") {
      ASSIGN_OR_RETURN(adapter.path, ReadOption("path of lora", member));
    } else if (key == "scale") {
      ASSIGN_OR_RETURN(adapter.scale, ReadAdapterScale(member));
    } else {
      return absl::InvalidArgumentError(absl::StrCat("options: unknown key '", key,
                                                     "' of lora (name, path and scale are known)"));
    }
  }
  if (!adapter.name.empty() && !adapter.path.empty()) return adapter;
  return absl::InvalidArgumentError(
      absl::StrCat("options: each of lora must have a name and a path, got ", value.Dump()));
}

absl::StatusOr<std::vector<AdapterOption>> ReadAdapters(const Json& value) {
  const bool objects =
      value.is_array() && std::all_of(value.array().begin(), value.array().end(),
                                      [](const Json& element) { return element.is_object(); });
  if (!objects) {
    return absl::InvalidArgumentError(
        absl::StrCat("options: lora must be an array of objects such as {\"name\": \"tone\", "
                     "\"path\": \"tone.gguf\"}, got ",
                     value.Dump()));
  }
  std::vector<AdapterOption> adapters;
  for (const Json& element : value.array()) {
    ASSIGN_OR_RETURN(AdapterOption adapter, ReadAdapter(element));
    const bool twice = std::any_of(adapters.begin(), adapters.end(),
                                   [&](const auto& a) { return a.name == adapter.name; });
    if (twice) {
      return absl::InvalidArgumentError(
          absl::StrCat("options: lora has two adapters named '", adapter.name, "'"));
    }
    adapters.push_back(std::move(adapter));
  }
  return adapters;
}

}  // namespace

absl::StatusOr<float> ReadAdapterScale(const Json& value) {
  const double scale = value.is_number() ? value.number() : NAN;
  if (std::abs(scale) <= std::numeric_limits<float>::max()) return static_cast<float>(scale);
  return absl::InvalidArgumentError(
      absl::StrCat("scale of lora must be a number, got ", value.Dump()));
}

absl::StatusOr<std::optional<DType>> ParseKvType(absl::string_view name) {
  for (const auto& [known, type] : kKvTypes) {
    if (known == name) return type;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("kv_type must be 'auto', 'f16', 'int16', 'int8' or 'f32', got '", name, "'"));
}

absl::string_view KvTypeName(std::optional<DType> type) {
  for (const auto& [name, known] : kKvTypes) {
    if (known == type) return name;
  }
  return "";
}

absl::Status ParseModelOptions(absl::string_view text, ModelOptions* options,
                               absl::Span<const absl::string_view> others) {
  const std::optional<Json> object = Json::Parse(text);
  if (!object || !object->is_object()) {
    return absl::InvalidArgumentError("options must be a JSON object such as {\"threads\": 4}");
  }
  std::set<absl::string_view> keys;
  for (const auto& [key, value] : object->members()) {
    if (!keys.insert(key).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("option '", Printable(key), "' is there twice"));
    }
    if (key == "device") {
      ASSIGN_OR_RETURN(options->device, ReadOption(key, value));
    } else if (key == "threads") {
      RETURN_IF_ERROR(ReadCount(key, value, &options->threads, kMaxThreads));
    } else if (key == "kv_bytes") {
      RETURN_IF_ERROR(ReadCount(key, value, &options->kv_bytes));
    } else if (key == "kv_type") {
      ASSIGN_OR_RETURN(std::string name, ReadOption(key, value));
      ASSIGN_OR_RETURN(options->kv_type, ParseKvType(name));
    } else if (key == "context_length") {
      RETURN_IF_ERROR(ReadCount(key, value, &options->context_length));
    } else if (key == "lora") {
      ASSIGN_OR_RETURN(options->lora, ReadAdapters(value));
    } else if (key == "draft") {
      ASSIGN_OR_RETURN(options->draft, ReadOption(key, value));
    } else if (key == "mtp") {
      if (!value.is_boolean()) {
        return absl::InvalidArgumentError(
            absl::StrCat("options: mtp must be true or false, got ", value.Dump()));
      }
      options->mtp = value.boolean();
    } else if (key == "prefix_store") {
      ASSIGN_OR_RETURN(options->prefix_store, ReadOption(key, value));
    } else if (key == "prefix_store_bytes") {
      RETURN_IF_ERROR(ReadCount(key, value, &options->prefix_store_bytes));
    } else if (key == "pack_cache") {
      ASSIGN_OR_RETURN(options->pack_cache, ReadOption(key, value));
    } else if (key == "pooling") {
      ASSIGN_OR_RETURN(options->pooling, ReadPooling(value));
    } else if (key == "chat_template") {
      ASSIGN_OR_RETURN(options->chat_template, ReadOption(key, value));
    } else if (key == "thinking_marks") {
      const absl::StatusOr<NamedMarks> marks = ReadNamedMarks(value);
      if (!marks.ok()) {
        return absl::InvalidArgumentError(absl::StrCat("options: ", marks.status().message()));
      }
      options->thinking_marks = *marks;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("options: unknown key '", key,
                       "' (device, threads, kv_bytes, kv_type, context_length, lora, draft, mtp, "
                       "pack_cache, prefix_store, prefix_store_bytes, pooling, "
                       "chat_template",
                       others.empty() ? "" : ", ", absl::StrJoin(others, ", "),
                       " and thinking_marks are known)"));
    }
  }
  return absl::OkStatus();
}

}  // namespace lm
