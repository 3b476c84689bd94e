// CostForecast: how long requests will take, before they are made.
//
// Prefill is bound by arithmetic and decode by memory or arithmetic, whichever takes longer:
//   prefill  2 x parameters x tokens / (peak operations a second), and the operations of attention
//            over all positions that the tokens see / (peak in F32 x how much faster attention is)
//   a step   max(bytes of weights, keys and values / bandwidth, 2 x parameters x sequences / peak),
//            and attention's as above
// divided by the share of these ceilings that the engine has reached so far; where it has done too
// little to tell, by an assumed share. Where the device's ceilings are not known, the forecast is
// by the tokens a second that the engine has had so far, if it has had any.
#ifndef LM_ENGINE_RUNTIME_COST_FORECAST_H_
#define LM_ENGINE_RUNTIME_COST_FORECAST_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "engine/backend/machine_ceilings.h"
#include "engine/model/model.h"
#include "engine/runtime/engine_stats.h"

namespace lm {

struct PlannedWork {
  int64_t prefill_tokens = 0;  // to compute: a prefix that prompts share counts once
  double positions = 0;        // that these tokens see: PositionsOf
  int64_t answers = 0;
  int64_t most_answer_tokens = 0;    // max_tokens of all answers
  double most_answer_positions = 0;  // that these tokens see
  double most_answer_reads = 0;      // as many, but a prefix that prompts share counts once
  int64_t free_answers = 0;          // answers without a constraint
  int64_t most_free_answer_tokens = 0;
  int32_t max_sequences = 64;  // that decode together
  bool like_the_past = false;  // the engine's past is a sample of this work, however small
};

struct CostForecast {
  // Answers without a constraint as long as this engine's were so far, at most as planned; others,
  // of which nothing else is known, as planned.
  int64_t answer_tokens = 0;
  std::optional<absl::Duration> prefill;
  std::optional<absl::Duration> decode;
  bool measured = false;  // both by this engine's own past
};

// `ceilings` where the model's device has known ones.
CostForecast Forecast(const PlannedWork& work, const EngineStats& stats, const ModelCost& cost,
                      const std::optional<MachineCeilings>& ceilings);

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_COST_FORECAST_H_
