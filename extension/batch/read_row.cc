#include "extension/batch/read_row.h"

#include <memory>
#include <utility>

#include "engine/base/status_macros.h"

namespace lm {

absl::StatusOr<RowPrompt> ReadRow(const Call& call) {
  RowPrompt row{.prompt = call.Text(0, "prompt"), .system = call.Text(1, "system")};
  if (row.prompt.ok() && !row.prompt->has_value()) return row;
  ASSIGN_OR_RETURN(CallOptions options, call.Options(2));
  row.options = std::make_shared<const CallOptions>(std::move(options));
  return row;
}

}  // namespace lm
