#include "extension/batch/read_in_parts.h"

#include "engine/base/status_macros.h"

namespace lm {

absl::StatusOr<ReadInParts> ReadPartsOptions(const OwnOptions& own) {
  ReadInParts parts;
  ASSIGN_OR_RETURN(parts.combine, own.Text("combine"));
  ASSIGN_OR_RETURN(const int64_t tokens, own.Integer("part_tokens", 0, 1, INT32_MAX));
  parts.part_tokens = static_cast<int32_t>(tokens);
  return parts;
}

}  // namespace lm
