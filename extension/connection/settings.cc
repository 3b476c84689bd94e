#include "extension/connection/settings.h"

#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/max_threads.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

std::string Shown(const Cell& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return absl::StrCat(*integer);
  if (const auto* real = std::get_if<double>(&value)) return absl::StrCat(*real);
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

template <typename T>
Cell CellOf(const std::optional<T>& value) {
  if (!value.has_value()) return std::monostate();
  return *value;
}

}  // namespace

Cell Settings::Get(absl::string_view key) const {
  if (key == "model") return CellOf(model);
  if (key == "threads") return CellOf(threads);
  if (key == "device") return CellOf(device);
  if (key == "kv_bytes") return CellOf(kv_bytes);
  if (key == "kv_type") return CellOf(kv_type);
  if (key == "max_tokens") return CellOf(max_tokens);
  if (key == "memo") return CellOf(memo);
  if (key == "memo_bytes") return CellOf(memo_bytes);
  if (key == "lookahead") return CellOf(lookahead);
  return CellOf(salt);
}

absl::Status Settings::Set(absl::string_view key, const Cell& value) {
  constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
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
  if (key == "device") return set_text(&device);
  if (key == "kv_bytes") return set_count(std::numeric_limits<int64_t>::max(), &kv_bytes);
  if (key == "kv_type") {
    std::optional<std::string> name;
    if (!unset) RETURN_IF_ERROR(SetText(key, value, &name));
    if (name.has_value()) RETURN_IF_ERROR(ParseKvType(*name).status());
    kv_type = std::move(name);
    return absl::OkStatus();
  }
  if (key == "max_tokens") return set_count(kMaxInt, &max_tokens);
  if (key == "memo") return set_text(&memo);
  if (key == "memo_bytes") return set_count(std::numeric_limits<int64_t>::max(), &memo_bytes);
  if (key == "salt") return set_text(&salt);
  if (key == "lookahead") {
    const auto* text = std::get_if<std::string>(&value);
    if (!unset && (text == nullptr || (*text != "on" && *text != "off"))) {
      return absl::InvalidArgumentError(
          absl::StrCat("lookahead must be 'on' or 'off', got ", Shown(value)));
    }
    return set_text(&lookahead);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown key '", key, "' (", absl::StrJoin(kKeys, ", "), " are known)"));
}

ModelOptions Settings::LoadingOptions() const {
  ModelOptions options;
  if (device.has_value()) options.device = *device;
  if (threads.has_value()) options.threads = static_cast<int>(*threads);
  if (kv_bytes.has_value()) options.kv_bytes = *kv_bytes;
  if (kv_type.has_value()) options.kv_type = ParseKvType(*kv_type).value();
  return options;
}

}  // namespace lm
