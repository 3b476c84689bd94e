#include "extension/tables/explain_sample.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "engine/base/hash_map.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/cost_forecast.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/memo.h"
#include "engine/runtime/memo_key.h"
#include "extension/connection/await.h"
#include "extension/connection/spending.h"

namespace lm {
namespace {

struct Tried {
  int64_t answered = 0;
  int64_t kept = 0;       // of these, by the memo
  int64_t generated = 0;  // of these, not remembered
  int64_t answer_tokens = 0;
  absl::Duration took;
};

// The lower of two limits, of which 0 is none.
template <typename Number>
Number Tighter(Number a, Number b) {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

// A sample under way. Destroying it cancels the requests that have not been waited for.
class Sample {
 public:
  Sample(Connection& connection, const PromptTally::Totals& totals, const SampleLimits& limits)
      : connection_(connection),
        totals_(totals),
        limits_(limits),
        prices_(connection.PricesOf(*totals.generator)) {}
  ~Sample() {
    for (const UnderWay& one : under_way_) one.request->Cancel();
  }
  Sample(const Sample&) = delete;
  Sample& operator=(const Sample&) = delete;

  absl::StatusOr<Tried> Ask() {
    const MonotonicTime began = MonotonicTime::Now();
    // What is equal to the memo is one in the totals, too.
    HashSet<MemoKey> known;
    for (const RequestSpec& spec : totals_.sample) {
      ASSIGN_OR_RETURN(std::optional<MemoKey> key, MakeMemoKey(*totals_.generator, spec,
                                                               /*owner=*/"", /*lasting=*/false));
      const bool is_kept = key.has_value();
      if (is_kept && !known.insert(*std::move(key)).second) continue;
      absl::Status submitted = Submit(spec, is_kept);
      if (absl::IsFailedPrecondition(submitted) && !under_way_.empty()) {
        // What those under way do not take is left for others.
        RETURN_IF_ERROR(Collect());
        submitted = Submit(spec, is_kept);
      }
      RETURN_IF_ERROR(Noted(submitted));
    }
    RETURN_IF_ERROR(Collect());
    if (tried_.answered == 0) return failure_;
    tried_.took = MonotonicTime::Now() - began;
    return tried_;
  }

 private:
  struct UnderWay {
    std::shared_ptr<Request> request;
    Expense most;
    bool is_kept;  // by the memo
  };

  // An error is an interrupt's; any other failure is a prompt's own.
  absl::Status Noted(const absl::Status& failure) {
    if (absl::IsCancelled(failure)) return failure;
    if (failure_.ok()) failure_ = failure;
    return absl::OkStatus();
  }

  absl::Status Submit(RequestSpec spec, bool is_kept) {
    GenerationOptions& options = spec.options;
    options.max_seconds = Tighter(options.max_seconds, limits_.max_seconds);
    options.max_total_tokens = Tighter(options.max_total_tokens, limits_.max_total_tokens);
    options.max_cost = Tighter(options.max_cost, limits_.max_cost);
    RETURN_IF_ERROR(CheckStatementTime(options.max_seconds));
    Expense most;
    if (HasBudget(options)) {
      PromptTally tally;
      RETURN_IF_ERROR(tally.Take(totals_.generator, spec).status());
      const PromptTally::Totals one = tally.Count().front();
      most = ExpenseOf(one.tokens, one.most_tokens_out(), prices_);
      RETURN_IF_ERROR(spending_.SetAside(options, most));
    }
    absl::StatusOr<std::shared_ptr<Request>> request =
        ProcessMemo().Submit(*totals_.generator, std::move(spec), connection_.AccessToMemo());
    if (request.ok()) {
      under_way_.push_back({*std::move(request), most, is_kept});
    } else {
      spending_.Settle(most, {});
    }
    return request.status();
  }

  absl::Status Collect() {
    for (; !under_way_.empty(); under_way_.pop_front()) {
      const auto& [request, most, is_kept] = under_way_.front();
      absl::Status status = Await(connection_.db(), *request);
      if (status.ok()) status = GenerationStatus(request->result());
      RETURN_IF_ERROR(Noted(status));
      Expense taken;
      if (status.ok()) {
        const Generation& answer = request->result();
        ++tried_.answered;
        tried_.kept += is_kept;
        tried_.generated += !answer.remembered;
        if (!answer.remembered) {
          tried_.answer_tokens += answer.tokens_out;
          taken = ExpenseOf(answer.tokens_in, answer.tokens_out, prices_);
        }
      }
      spending_.Settle(most, taken);
    }
    return absl::OkStatus();
  }

  Connection& connection_;
  const PromptTally::Totals& totals_;
  const SampleLimits limits_;
  const Prices prices_;
  Spending spending_;
  std::deque<UnderWay> under_way_;
  Tried tried_;
  absl::Status failure_;  // the first one
};

int64_t Part(int64_t count, double share) {
  return std::llround(static_cast<double>(count) * share);
}

}  // namespace

absl::StatusOr<SampledCost> TrySample(Connection& connection, const PromptTally::Totals& totals,
                                      const SampleLimits& limits,
                                      const std::optional<MachineCeilings>& ceilings) {
  const std::shared_ptr<Engine>& engine = totals.generator->engine();
  const EngineStats before = engine != nullptr ? engine->Stats() : EngineStats();
  ASSIGN_OR_RETURN(const Tried tried, Sample(connection, totals, limits).Ask());
  const auto asked = static_cast<double>(tried.answered);
  const auto left_prompts = static_cast<double>(std::max<int64_t>(totals.prompts - tried.kept, 0));
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
  const int64_t answer_tokens =
      std::min(Part(totals.most_answer_tokens, share), cost.answer_tokens);
  const double of_most = static_cast<double>(answer_tokens) /
                         std::max(1.0, static_cast<double>(totals.most_answer_tokens));
  const CostForecast forecast =
      Forecast({.prefill_tokens = Part(totals.tokens - totals.tokens_shared, share),
                .positions = totals.positions * share,
                .answers = Part(totals.answers, share),
                .most_answer_tokens = answer_tokens,
                .most_answer_positions = totals.most_answer_positions * of_most,
                .most_answer_reads = totals.most_answer_reads * of_most,
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
