#include "engine/runtime/trouble.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/cord.h"
#include "engine/base/out_of_memory.h"

namespace lm {
namespace {

constexpr char kPayload[] = "sqlite-lm/trouble";
// By their numbers.
constexpr const char* kNames[] = {"none",   "server",  "refusal", "unproven",
                                  "outage", "account", "memory",  "loss"};
static_assert(std::size(kNames) == static_cast<size_t>(Trouble::kLoss) + 1);

}  // namespace

absl::Status WithTrouble(absl::Status status, Trouble trouble) {
  if (trouble != Trouble::kNone) {
    status.SetPayload(kPayload, absl::Cord(kNames[static_cast<size_t>(trouble)]));
  }
  return status;
}

Trouble TroubleOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayload);
  if (!payload.has_value()) return status == OutOfMemory() ? Trouble::kMemory : Trouble::kNone;
  const auto name = std::find(std::begin(kNames), std::end(kNames), std::string(*payload));
  return name == std::end(kNames) ? Trouble::kNone
                                  : static_cast<Trouble>(name - std::begin(kNames));
}

}  // namespace lm
