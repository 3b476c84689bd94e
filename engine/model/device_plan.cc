#include "engine/model/device_plan.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/backend/registry.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

std::string FirstUsable() {
  for (const DeviceInfo& info : ListDevices()) {
    if (info.device != "cpu" && info.unusable.empty()) return info.device;
  }
  return "cpu";
}

// The first GPU's name; empty where there is none.
absl::string_view FirstGpu(absl::Span<const DeviceLayers> plan) {
  for (const DeviceLayers& run : plan) {
    for (absl::string_view device : absl::StrSplit(run.device, '+')) {
      if (CudaNumber(device).has_value()) return device;
    }
  }
  return "";
}

// Of one that is no CPU; cuda is cuda:0.
absl::Status CheckGpu(absl::string_view device) {
  std::vector<std::string> usable;
  std::string why;
  for (const DeviceInfo& info : ListDevices()) {
    if (info.unusable.empty()) {
      usable.push_back(info.device);
    } else if (why.empty() && info.device != "cpu") {
      why = info.unusable;
    }
    const bool is_this = info.device == device || (device == "cuda" && info.device == "cuda:0");
    if (is_this && info.unusable.empty()) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("device '", device, "' cannot be used here", why.empty() ? "" : " (", why,
                   why.empty() ? "" : ")", "; lm_devices has ", absl::StrJoin(usable, ", ")));
}

}  // namespace

absl::Status CheckDevices(absl::string_view devices) {
  if (devices == "auto") return absl::OkStatus();
  for (absl::string_view part : absl::StrSplit(devices, ',')) {
    const absl::string_view together = part.substr(0, part.find('='));
    RETURN_IF_ERROR(CheckOfAKind(together));
    for (absl::string_view device : absl::StrSplit(together, '+')) {
      if (device == "cpu" || device == "reference") continue;
      if (!CudaNumber(device).has_value()) {
        return absl::InvalidArgumentError(
            absl::StrCat("a device must be 'auto', 'cpu', 'reference', 'cuda' or 'cuda:<n>', or "
                         "some of a kind, 'cuda:0+cuda:1', got '",
                         Printable(device), "'"));
      }
      RETURN_IF_ERROR(CheckGpu(device));
    }
  }
  return absl::OkStatus();
}

std::string WhyNoGpu() {
  std::string why;
  for (const DeviceInfo& info : ListDevices()) {
    if (info.device == "cpu") continue;
    if (info.unusable.empty()) return "";
    if (!why.empty()) continue;
    if (absl::StrContains(info.device, ':')) {
      why = absl::StrCat(info.device, " (", info.name, "): ", info.unusable);
    } else if (HasNvidiaDriver()) {
      why = info.unusable;
    }
  }
  return why;
}

absl::StatusOr<std::vector<DeviceLayers>> PlanDevices(absl::string_view devices, int64_t layers) {
  if (devices == "auto") return std::vector<DeviceLayers>{{FirstUsable(), 0, layers}};
  auto error = [&](const auto&... why) {
    return absl::InvalidArgumentError(
        absl::StrCat("device \"", Printable(devices), "\": ", why...));
  };
  std::vector<std::pair<std::string, std::optional<int64_t>>> parts;
  int64_t left = layers, sharing = 0;
  for (absl::string_view part : absl::StrSplit(devices, ',')) {
    std::pair<std::string, std::string> sides = absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (sides.first.empty()) return error("a device has no name");
    std::optional<int64_t> count;
    if (part.find('=') != absl::string_view::npos) {
      int64_t number;
      if (!absl::SimpleAtoi(sides.second, &number) || number < 1 || number > layers) {
        return error("the layers of ", sides.first, " must be 1 to ", layers, ", got '",
                     Printable(sides.second), "'");
      }
      count = number;
      left -= number;
    } else {
      ++sharing;
    }
    parts.emplace_back(std::move(sides.first), count);
  }
  if (left < sharing || (sharing == 0 && left != 0)) {
    return error("the model has ", layers, " layers, ", layers - left, " are given to devices",
                 sharing > 0 ? absl::StrCat(", and ", sharing, " want some of the rest") : "");
  }
  std::vector<DeviceLayers> plan;
  int64_t next = 0;
  for (auto& [device, count] : parts) {
    int64_t own = 0;
    if (count.has_value()) {
      own = *count;
    } else {
      own = (left + sharing - 1) / sharing;
      left -= own;
      --sharing;
    }
    plan.push_back({std::move(device), next, next + own});
    next += own;
  }
  return plan;
}

bool HasGpu(absl::Span<const DeviceLayers> plan) { return !FirstGpu(plan).empty(); }

absl::StatusOr<DType> KvTypeOn(absl::Span<const DeviceLayers> plan, std::optional<DType> asked) {
  const absl::string_view gpu = FirstGpu(plan);
  if (gpu.empty()) return asked.value_or(DType::kI16);
  if (asked != DType::kI16) return asked.value_or(DType::kF16);
  return absl::InvalidArgumentError(absl::StrCat(
      "kv_type 'int16' is for CPUs: wanted 'f16', 'int8' or 'f32' on device '", gpu, "'"));
}

}  // namespace lm
