// ReadInParts: of a text that need not fit the model's context. Where it does not, it is read in
// parts (map_reduce.h); the system prompt is then the instruction for each.
//
//   ASSIGN_OR_RETURN(auto own, OwnOptions::TakeOfCall(json, {"combine", "part_tokens"}));
//   ASSIGN_OR_RETURN(ReadInParts parts, ReadPartsOptions(own));
#ifndef LM_EXTENSION_BATCH_READ_IN_PARTS_H_
#define LM_EXTENSION_BATCH_READ_IN_PARTS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "extension/connection/own_options.h"

namespace lm {

// The instruction where none is given.
inline constexpr char kSummarise[] = "Summarise the text.";

struct ReadInParts {
  std::optional<std::string> combine = {};  // what to do with the parts' answers; else our wording
  int32_t part_tokens = 0;                  // most of the text in a part; 0: what fits the context

  friend bool operator==(const ReadInParts& a, const ReadInParts& b) {
    return a.combine == b.combine && a.part_tokens == b.part_tokens;
  }
};

// From the options combine and part_tokens. InvalidArgument for values that they cannot have.
absl::StatusOr<ReadInParts> ReadPartsOptions(const OwnOptions& own);

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_READ_IN_PARTS_H_
