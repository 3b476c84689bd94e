#include "extension/connection/settings.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/cpu_features.h"
#include "engine/base/json.h"
#include "engine/base/max_threads.h"
#include "engine/base/status_macros.h"
#include "engine/cache/prefix_store.h"
#include "engine/model/cache_spec.h"
#include "engine/model/device_plan.h"
#include "engine/runtime/generation_options.h"
#include "extension/connection/absolute_path.h"
#include "extension/connection/own_options.h"
#include "extension/memo/memo_file.h"

namespace lm {
namespace {

std::string Shown(const Cell& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return absl::StrCat(*integer);
  if (const auto* real = std::get_if<double>(&value)) {
    const std::string digits = absl::StrCat(*real);
    const bool whole = digits.find_first_not_of("-0123456789") == std::string::npos;
    return whole ? absl::StrCat(digits, ".0") : digits;
  }
  if (const auto* text = std::get_if<std::string>(&value)) return absl::StrCat("'", *text, "'");
  return "NULL";
}

absl::Status SetCount(absl::string_view key, const Cell& value, int64_t max,
                      std::optional<int64_t>* out) {
  const auto* count = std::get_if<int64_t>(&value);
  if (count == nullptr || *count < 0 || *count > max) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, " must be an integer from 0 to ", max, ", got ", Shown(value)));
  }
  *out = *count;
  return absl::OkStatus();
}

absl::Status SetText(absl::string_view key, const Cell& value, std::optional<std::string>* out) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr || text->empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, " must be a text that is not empty, got ", Shown(value)));
  }
  *out = *text;
  return absl::OkStatus();
}

// The path of a folder; kept as an absolute one.
absl::Status SetFolder(absl::string_view key, const Cell& value, std::optional<std::string>* out) {
  std::optional<std::string> path;
  RETURN_IF_ERROR(SetText(key, value, &path));
  ASSIGN_OR_RETURN(*out, AbsolutePath(key, *path));
  return absl::OkStatus();
}

template <typename T>
Cell CellOfSetting(const std::optional<T>& value) {
  if (!value.has_value()) return std::monostate();
  return *value;
}

}  // namespace

Cell Settings::Get(absl::string_view key) const {
  if (key == "model") return CellOfSetting(model);
  if (key == "threads") return CellOfSetting(threads);
  if (key == "device") return CellOfSetting(device);
  if (key == "kv_bytes") return CellOfSetting(kv_bytes);
  if (key == "kv_type") return CellOfSetting(kv_type);
  if (key == "pack_cache") return CellOfSetting(pack_cache);
  if (key == "prefix_store") return CellOfSetting(prefix_store);
  if (key == "prefix_store_bytes") return CellOfSetting(prefix_store_bytes);
  if (key == "memo") return CellOfSetting(memo);
  if (key == "memo_bytes") return CellOfSetting(memo_bytes);
  if (key == "lookahead") return CellOfSetting(lookahead);
  if (key == "network") return CellOfSetting(network);
  if (key == "salt") return CellOfSetting(salt);
  if (key == "system") return CellOfSetting(system);
  const auto option = options.find(key);
  return option != options.end() ? option->second : Cell();
}

Cell Settings::Default(absl::string_view key) {
  const ModelOptions loading = Settings().LoadingOptions();
  const GenerationOptions generation;
  if (key == "model") return "default";
  if (key == "threads") return int64_t{DefaultThreads()};
  if (key == "device") return loading.device;
  if (key == "kv_bytes") return DefaultCacheBytes();
  if (key == "kv_type") return std::string(KvTypeName(loading.kv_type));
  if (key == "pack_cache" && !loading.pack_cache.empty()) return loading.pack_cache;
  if (key == "prefix_store_bytes") return PrefixStoreOptions().max_bytes;
  if (key == "memo_bytes") return MemoFile::kDefaultBytes;
  if (key == "lookahead" || key == "network") return "on";
  if (key == "max_tokens") return int64_t{generation.max_tokens};
  if (key == "temperature") return generation.temperature;
  if (key == "top_k") return int64_t{generation.top_k};
  if (key == "top_p") return generation.top_p;
  if (key == "min_p") return generation.min_p;
  if (key == "seed") return static_cast<int64_t>(generation.seed);
  if (key == "repeat_penalty") return generation.repeat_penalty;
  if (key == "thinking") return "drop";
  if (key == "speculate") return "auto";
  if (key == "on_overflow" || key == "on_error") return "error";
  if (key == "timeout_ms") return generation.timeout_ms;
  if (key == "max_seconds") return generation.max_seconds;
  if (key == "max_total_tokens") return generation.max_total_tokens;
  if (key == "max_cost") return generation.max_cost;
  return Cell();
}

absl::Status Settings::Set(absl::string_view key, const Cell& value) {
  bool unset = std::holds_alternative<std::monostate>(value);
  auto set_text = [&](std::optional<std::string>* out) {
    if (!unset) return SetText(key, value, out);
    out->reset();
    return absl::OkStatus();
  };
  auto set_count = [&](int64_t max, std::optional<int64_t>* out) {
    if (!unset) return SetCount(key, value, max, out);
    out->reset();
    return absl::OkStatus();
  };
  if (key == "model") return set_text(&model);
  if (key == "threads") return set_count(kMaxThreads, &threads);
  if (key == "device") {
    std::optional<std::string> name;
    if (!unset) RETURN_IF_ERROR(SetText(key, value, &name));
    if (name.has_value()) RETURN_IF_ERROR(CheckDevices(*name));
    device = std::move(name);
    return absl::OkStatus();
  }
  if (key == "kv_bytes") return set_count(std::numeric_limits<int64_t>::max(), &kv_bytes);
  if (key == "kv_type") {
    std::optional<std::string> name;
    if (!unset) RETURN_IF_ERROR(SetText(key, value, &name));
    if (name.has_value()) RETURN_IF_ERROR(ParseKvType(*name).status());
    kv_type = std::move(name);
    return absl::OkStatus();
  }
  if (key == "pack_cache" || key == "prefix_store") {
    std::optional<std::string>* const folder = key == "pack_cache" ? &pack_cache : &prefix_store;
    if (!unset) return SetFolder(key, value, folder);
    folder->reset();
    return absl::OkStatus();
  }
  if (key == "prefix_store_bytes") {
    return set_count(std::numeric_limits<int64_t>::max(), &prefix_store_bytes);
  }
  if (key == "memo") return set_text(&memo);
  if (key == "memo_bytes") return set_count(std::numeric_limits<int64_t>::max(), &memo_bytes);
  if (key == "salt") return set_text(&salt);
  if (key == "lookahead" || key == "network") {
    const auto* text = std::get_if<std::string>(&value);
    if (!unset && (text == nullptr || (*text != "on" && *text != "off"))) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, " must be 'on' or 'off', got ", Shown(value)));
    }
    return set_text(key == "network" ? &network : &lookahead);
  }
  if (key == "system") {
    const auto* text = std::get_if<std::string>(&value);
    if (!unset && text == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("system must be a text, got ", Shown(value)));
    }
    if (text != nullptr) RETURN_IF_ERROR(CheckNotOptions(*text, "system"));
    system = unset ? std::nullopt : std::optional<std::string>(*text);
    return absl::OkStatus();
  }
  if (std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end()) return SetOption(key, value);
  if (IsGenerationOption(key)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", key, "' belongs in a call's options, as in generate(prompt, NULL, '{\"", key,
        "\":...}'); as a default for all calls, ", absl::StrJoin(kKeys, ", "), " are known"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown key '", key, "' (", absl::StrJoin(kKeys, ", "), " are known)"));
}

absl::Status Settings::SetOption(absl::string_view key, const Cell& value) {
  Settings changed;
  changed.options = options;
  changed.options.erase(std::string(key));
  if (!std::holds_alternative<std::monostate>(value)) {
    changed.options.emplace(key, value);
    GenerationOptions checked;
    RETURN_IF_ERROR(ParseGenerationOptions(changed.OptionsJson(), &checked));
  }
  options = std::move(changed.options);
  return absl::OkStatus();
}

std::string Settings::OptionsJson() const {
  if (options.empty()) return "";
  Json object = Json::MakeObject();
  for (const auto& [key, value] : options) {
    if (const auto* integer = std::get_if<int64_t>(&value)) {
      object.Add(key, Json(*integer));
    } else if (const auto* real = std::get_if<double>(&value)) {
      object.Add(key, Json(*real));
    } else {
      object.Add(key, Json(std::get<std::string>(value)));
    }
  }
  return object.Dump();
}

ModelOptions Settings::LoadingOptions() const {
  ModelOptions options;
  if (const char* folder = std::getenv("LM_PACK_CACHE")) options.pack_cache = PathFromStart(folder);
  if (device.has_value()) options.device = *device;
  if (pack_cache.has_value()) options.pack_cache = *pack_cache;
  if (prefix_store.has_value()) options.prefix_store = *prefix_store;
  if (prefix_store_bytes.has_value()) options.prefix_store_bytes = *prefix_store_bytes;
  if (threads.has_value()) options.threads = static_cast<int>(*threads);
  if (kv_bytes.has_value()) options.kv_bytes = *kv_bytes;
  if (kv_type.has_value()) options.kv_type = ParseKvType(*kv_type).value();
  return options;
}

}  // namespace lm
