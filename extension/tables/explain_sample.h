// A few of a query's prompts, really asked: what they took tells what all of them will.
//
//   ASSIGN_OR_RETURN(SampledCost cost, TrySample(connection, totals, limits, ceilings));
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

// What a sample may take, as the options max_seconds, max_total_tokens and max_cost of a statement;
// 0: no limit.
struct SampleLimits {
  double max_seconds = 0;
  int64_t max_total_tokens = 0;
  double max_cost = 0;
};

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
// it. A prompt is asked only where the limits, and the budgets of its own options, have left what
// it may take. Prompts without an answer, for that or any other reason, are no part of the sample;
// where none has one, the first failure is the error. So is an interrupt. REQUIRES: the sample is
// not empty.
absl::StatusOr<SampledCost> TrySample(Connection& connection, const PromptTally::Totals& totals,
                                      const SampleLimits& limits,
                                      const std::optional<MachineCeilings>& ceilings);

}  // namespace lm

#endif  // LM_EXTENSION_TABLES_EXPLAIN_SAMPLE_H_
