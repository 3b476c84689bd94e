// What an engine has done so far; a snapshot for lm_stats.
#ifndef LM_ENGINE_RUNTIME_ENGINE_STATS_H_
#define LM_ENGINE_RUNTIME_ENGINE_STATS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lm {

// Percentiles over the last few thousand observations.
struct LatencySummary {
  int64_t count = 0;
  absl::Duration p50, p95, p99;
};

// What was asked of the machine.
struct Work {
  double operations = 0;  // of the products with the weights; a multiply and an add are two
  double bytes = 0;       // weights and cached keys and values that had to be read
  double positions = 0;   // that the tokens had before them, themselves included

  Work& operator+=(const Work& other) {
    operations += other.operations;
    bytes += other.bytes;
    positions += other.positions;
    return *this;
  }
  Work& operator-=(const Work& other) {
    operations -= other.operations;
    bytes -= other.bytes;
    positions -= other.positions;
    return *this;
  }
};

// Of the tokens [begin, end) of a sequence.
inline double PositionsOf(int64_t begin, int64_t end) {
  const auto up_to = [](auto n) {
    return 0.5 * static_cast<double>(n) * (static_cast<double>(n) + 1);
  };
  return up_to(end) - up_to(begin);
}

// Whether a request that ended so has failed. A cancelled one has not: a look-ahead, for one,
// cancels the requests of rows that a LIMIT leaves out.
inline bool IsFailure(const absl::Status& end) { return !end.ok() && !absl::IsCancelled(end); }

// Of the requests of one salt that have ended.
struct RequestCounts {
  int64_t requests = 0;
  int64_t failed = 0;            // by IsFailure
  int64_t tokens_prefilled = 0;  // of their prompts, computed
  int64_t tokens_reused = 0;     // of their prompts, found in the prefix cache
  int64_t tokens_decoded = 0;    // of their answers
};

struct EngineStats {
  int64_t requests = 0;          // finished, whatever their end
  int64_t failed = 0;            // by IsFailure
  int64_t running = 0;           // now
  int64_t queued = 0;            // now
  int64_t tokens_prefilled = 0;  // computed
  int64_t tokens_reused = 0;     // taken from the prefix cache instead
  int64_t tokens_decoded = 0;
  int64_t free_answers = 0;        // answers without a constraint that the model ended itself
  int64_t free_answer_tokens = 0;  // of answers without a constraint, also those that were cut
  int64_t steps = 0;
  int64_t decode_steps = 0;     // steps that decoded at least one token
  int64_t decode_rows = 0;      // sequences that decoded, in all steps together
  absl::Duration prefill_time;  // model time, shared out by tokens in mixed steps
  absl::Duration decode_time;
  Work prefill_work;
  Work decode_work;
  LatencySummary time_to_first_token;
  LatencySummary inter_token_latency;
  int64_t kv_blocks_total = 0;  // of full attention
  int64_t kv_blocks_free = 0;
  int64_t kv_blocks_cached = 0;  // held by the prefix tree
  int64_t kv_block_bytes = 0;    // a block of each class
  int64_t kv_bytes_total = 0;    // of all classes, and states
  int64_t kv_bytes_free = 0;
  int64_t kv_bytes_cached = 0;
  int64_t preemptions = 0;
  int64_t tokens_drafted = 0;    // guessed, and checked by the model (see Speculator)
  int64_t tokens_accepted = 0;   // guessed right
  int64_t early_steps = 0;       // began before the step before had been read
  double steps_saved = 0;        // steps that the tokens guessed right would have taken
  std::string draft_model = "";  // the model that guesses, or "its own layer"; empty: none does
  bool laid_out = false;         // all weights are laid out: no step waits for that any more
};

// The work that was done between two looks; what is no count of work is as it was at the second.
inline EngineStats Between(const EngineStats& before, EngineStats after) {
  after.tokens_prefilled -= before.tokens_prefilled;
  after.tokens_decoded -= before.tokens_decoded;
  after.decode_steps -= before.decode_steps;
  after.prefill_time -= before.prefill_time;
  after.prefill_work -= before.prefill_work;
  after.decode_time -= before.decode_time;
  after.decode_work -= before.decode_work;
  after.time_to_first_token.count -= before.time_to_first_token.count;
  after.inter_token_latency.count -= before.inter_token_latency.count;
  return after;
}

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_ENGINE_STATS_H_
