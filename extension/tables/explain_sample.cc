#include "extension/tables/explain_sample.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/cost_forecast.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/memo.h"
#include "extension/connection/await.h"

namespace lm {
namespace {

// What the engine has done between two looks at it.
EngineStats Between(const EngineStats& before, EngineStats after) {
  after.tokens_prefilled -= before.tokens_prefilled;
  after.tokens_decoded -= before.tokens_decoded;
  after.decode_steps -= before.decode_steps;
  after.prefill_time -= before.prefill_time;
  after.decode_time -= before.decode_time;
  after.decode_work.operations -= before.decode_work.operations;
  after.decode_work.bytes -= before.decode_work.bytes;
  after.time_to_first_token.count -= before.time_to_first_token.count;
  after.inter_token_latency.count -= before.inter_token_latency.count;
  return after;
}

struct Tried {
  int64_t generated = 0;  // not remembered
  int64_t answer_tokens = 0;
  absl::Duration took;
};

absl::StatusOr<Tried> Ask(Connection& connection, const PromptTally::Totals& totals) {
  const absl::Time began = absl::Now();
  std::vector<std::shared_ptr<Request>> requests;
  for (const RequestSpec& spec : totals.sample) {
    ASSIGN_OR_RETURN(std::shared_ptr<Request> request,
                     ProcessMemo().Submit(*totals.generator, spec, connection.AccessToMemo()));
    requests.push_back(std::move(request));
  }
  Tried tried;
  for (const std::shared_ptr<Request>& request : requests) {
    RETURN_IF_ERROR(Await(connection.db(), *request));
    const Generation& answer = request->result();
    if (answer.remembered) continue;
    ++tried.generated;
    tried.answer_tokens += answer.tokens_out;
  }
  tried.took = absl::Now() - began;
  return tried;
}

int64_t Part(int64_t count, double share) {
  return std::llround(static_cast<double>(count) * share);
}

}  // namespace

absl::StatusOr<SampledCost> TrySample(Connection& connection, const PromptTally::Totals& totals,
                                      const std::optional<MachineCeilings>& ceilings) {
  const std::shared_ptr<Engine>& engine = totals.generator->engine();
  const EngineStats before = engine != nullptr ? engine->Stats() : EngineStats();
  ASSIGN_OR_RETURN(const Tried tried, Ask(connection, totals));
  const auto asked = static_cast<double>(totals.sample.size());
  const bool kept = totals.sample.front().options.cache;
  const double left_prompts =
      std::max<double>(static_cast<double>(totals.prompts) - (kept ? asked : 0), 0);
  const double share = left_prompts / static_cast<double>(totals.prompts) *
                       static_cast<double>(tried.generated) / asked;
  SampledCost cost{.prompt_tokens = Part(totals.tokens, share)};
  if (tried.generated == 0 || share == 0) {
    cost.prefill = cost.decode = cost.all = absl::ZeroDuration();
    return cost;
  }
  const double rows = left_prompts * static_cast<double>(tried.generated) / asked;
  const double times = rows / static_cast<double>(tried.generated);
  cost.answer_tokens = Part(tried.answer_tokens, times);
  if (engine == nullptr) {
    cost.all = tried.took * times;
    return cost;
  }
  const EngineStats work = Between(before, engine->Stats());
  const CostForecast forecast = Forecast(
      {.prefill_tokens = Part(totals.tokens - totals.tokens_shared, share),
       .answers = Part(totals.answers, share),
       .most_answer_tokens = std::min(Part(totals.most_answer_tokens, share), cost.answer_tokens),
       .like_the_past = true},
      work, totals.generator->info().cost, ceilings);
  cost.prefill = forecast.prefill;
  cost.decode = forecast.decode;
  // What is neither: masks, tokens made text, whatever else the machine has to do.
  const absl::Duration model = work.prefill_time + work.decode_time;
  if (!cost.prefill.has_value() || !cost.decode.has_value()) return cost;
  const double around = model > absl::ZeroDuration() ? absl::FDivDuration(tried.took, model) : 1;
  cost.all = (*cost.prefill + *cost.decode) * std::max(around, 1.0);
  return cost;
}

}  // namespace lm
