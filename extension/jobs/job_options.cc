#include "extension/jobs/job_options.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/connection/own_options.h"

namespace lm {

absl::StatusOr<JobOptions> ReadJobOptions(const std::optional<std::string>& json) {
  ASSIGN_OR_RETURN(const OwnOptions own,
                   OwnOptions::TakeOfCall(json, {"summarize", "combine", "part_tokens"}));
  JobOptions options{.of_calls = own.rest()};
  ASSIGN_OR_RETURN(const bool summarizes, own.Bool("summarize", false));
  ASSIGN_OR_RETURN(ReadInParts parts, ReadPartsOptions(own));
  if (summarizes) {
    options.parts = std::make_shared<const ReadInParts>(std::move(parts));
    return options;
  }
  for (const char* key : {"combine", "part_tokens"}) {
    if (own.Value(key) == nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(key, " is for texts that are read in parts: \"summarize\":true beside it"));
  }
  return options;
}

}  // namespace lm
