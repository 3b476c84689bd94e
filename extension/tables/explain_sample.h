// A few of a query's prompts, really asked: what they took tells what all of them will.
//
//   ASSIGN_OR_RETURN(SampledCost cost, TrySample(connection, totals, ceilings));
#ifndef LM_EXTENSION_TABLES_EXPLAIN_SAMPLE_H_
#define LM_EXTENSION_TABLES_EXPLAIN_SAMPLE_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/backend/machine_ceilings.h"
#include "engine/runtime/prompt_tally.h"
#include "extension/connection/connection.h"

namespace lm {

// Of what is left to generate: neither the sample's own answers, where the memo has them now, nor,
// as far as the sample tells, what it had before.
struct SampledCost {
  int64_t prompt_tokens = 0;  // shared or not
  int64_t answer_tokens = 0;
  std::optional<absl::Duration> prefill = {};  // of a model elsewhere, neither of these
  std::optional<absl::Duration> decode = {};
  std::optional<absl::Duration> all = {};
};

// Asks totals.sample together, and waits for the answers; the memo keeps them where the options let
// it. An error is an interrupt, or a row's that cannot be submitted. REQUIRES: the sample is not
// empty.
absl::StatusOr<SampledCost> TrySample(Connection& connection, const PromptTally::Totals& totals,
                                      const std::optional<MachineCeilings>& ceilings);

}  // namespace lm

#endif  // LM_EXTENSION_TABLES_EXPLAIN_SAMPLE_H_
