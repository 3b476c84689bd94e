// Series of measurements that say how a cost grows; each returns a JSON array or object.
#ifndef LM_TESTS_BENCHMARKS_SWEEPS_H_
#define LM_TESTS_BENCHMARKS_SWEEPS_H_

#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "tests/benchmarks/model_work.h"
#include "tests/benchmarks/timed_engine.h"

namespace lm {

// Prompts of 128 to `longest` tokens: prefill, a decoded token at that context with the KV cache,
// and what the token costs where everything before it is computed again.
absl::StatusOr<nlohmann::ordered_json> SweepLengths(TimedEngine* engine, int longest);

// 1, 2, 4, ..., 64 rows of the rows64 protocol.
absl::StatusOr<nlohmann::ordered_json> SweepRows(TimedEngine* engine, int reps);

// `rows` rows over one prefix of `prefix` tokens: a decode step where they share its KV blocks
// against the same rows with copies of their own; the logits must be the same bits.
absl::StatusOr<nlohmann::ordered_json> MeasureSharedPrefix(const std::string& path,
                                                           const ModelOptions& options, int prefix,
                                                           int rows, int reps);

// KV bytes a token, predicted, as the cache counts them and as the process grows; and the part of
// the blocks that stays empty, over prompts of mixed lengths.
absl::StatusOr<nlohmann::ordered_json> MeasureKv(TimedEngine* engine, const ModelWork& work);

// One row and 8 of 128 tokens each that decode 128 more, with guesses where they pay and
// without, in turns. `seen`: the same answers have been given before (prompt lookup's best case).
// `drawn`: they are drawn at a temperature at which nothing repeats (its worst). Wall-clock ratios,
// medians, and what was guessed.
absl::StatusOr<nlohmann::ordered_json> SweepSpeculation(TimedEngine* engine, int reps);

int64_t ResidentBytes();

}  // namespace lm

#endif  // LM_TESTS_BENCHMARKS_SWEEPS_H_
