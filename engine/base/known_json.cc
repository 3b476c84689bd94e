#include "engine/base/known_json.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::StatusOr<Json> ReadKnownJson(absl::string_view text) {
  std::optional<Json> json = Json::Parse(text);
  if (json.has_value()) return *std::move(json);
  RETURN_IF_ERROR(Checkpoint());
  return absl::InternalError("what was written as JSON is none");
}

}  // namespace lm
