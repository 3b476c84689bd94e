// JSON that was written, or read to its end, in this process before.
//
//   ASSIGN_OR_RETURN(const Json messages, ReadKnownJson(spec.text));
#ifndef LM_ENGINE_BASE_KNOWN_JSON_H_
#define LM_ENGINE_BASE_KNOWN_JSON_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/json.h"

namespace lm {

// Only an interrupt keeps it from being read: what the Checkpoint() said. Internal if it is no JSON
// after all.
absl::StatusOr<Json> ReadKnownJson(absl::string_view text);

}  // namespace lm

#endif  // LM_ENGINE_BASE_KNOWN_JSON_H_
