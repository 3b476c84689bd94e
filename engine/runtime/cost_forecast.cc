#include "engine/runtime/cost_forecast.h"

#include <algorithm>

namespace lm {
namespace {

// Less than this says nothing about an engine's speed.
constexpr int64_t kTellingPrefillTokens = 256;
constexpr int64_t kTellingDecodeSteps = 16;
constexpr int64_t kTellingAnswers = 3;

// Of the ceilings, for an engine without a past.
constexpr double kAssumedShare = 0.4;

double Seconds(absl::Duration d) { return absl::ToDoubleSeconds(d); }

// A model on a machine with known ceilings.
struct Bounds {
  const ModelCost& cost;
  const MachineCeilings& ceilings;
  double peak;  // of its products, operations a second

  bool known() const {
    return peak > 0 && ceilings.read_bytes_per_second > 0 && ceilings.fp32_flops_per_second > 0;
  }

  // Of `each` for every position that tokens see, where windows let them.
  double Seen(double tokens, double positions, int64_t ModelCost::Attention::*each) const {
    double sum = 0;
    for (const ModelCost::Attention& a : cost.attention) {
      const double seen =
          a.window == 0 ? positions : std::min(positions, tokens * static_cast<double>(a.window));
      sum += seen * static_cast<double>(a.*each);
    }
    return sum;
  }
  double AttentionSeconds(double tokens, double positions) const {
    return Seen(tokens, positions, &ModelCost::Attention::operations) /
           (ceilings.fp32_flops_per_second * cost.attention_speed);
  }

  // Seconds that the ceilings allow; 0 where they are not known.
  double Prefill(double tokens, double positions) const {
    if (!known()) return 0;
    return 2.0 * static_cast<double>(cost.body_parameters) * tokens / peak +
           AttentionSeconds(tokens, positions);
  }
  double Decode(double tokens, const Work& work) const {
    if (!known()) return 0;
    return std::max(work.operations / peak, work.bytes / ceilings.read_bytes_per_second) +
           AttentionSeconds(tokens, work.positions);
  }
};

}  // namespace

CostForecast Forecast(const PlannedWork& work, const EngineStats& stats, const ModelCost& cost,
                      const std::optional<MachineCeilings>& ceilings) {
  CostForecast forecast;
  forecast.answer_tokens = work.most_answer_tokens;
  if (stats.free_answers >= kTellingAnswers) {
    // One that was cut would have gone on: its tokens count, and its end does not.
    const double mean =
        static_cast<double>(stats.free_answer_tokens) / static_cast<double>(stats.free_answers);
    const auto expected = static_cast<int64_t>(mean * static_cast<double>(work.free_answers) + 0.5);
    forecast.answer_tokens -= std::max<int64_t>(work.most_free_answer_tokens - expected, 0);
  }
  const double prefill_tokens = static_cast<double>(work.prefill_tokens);
  const double answer_tokens = static_cast<double>(forecast.answer_tokens);
  const int64_t least_tokens = work.like_the_past ? 1 : kTellingPrefillTokens;
  const int64_t least_steps = work.like_the_past ? 1 : kTellingDecodeSteps;
  const bool prefill_tells =
      stats.tokens_prefilled >= least_tokens && stats.prefill_time > absl::ZeroDuration();
  const bool decode_tells =
      stats.decode_steps >= least_steps && stats.decode_time > absl::ZeroDuration();
  forecast.measured = prefill_tells && decode_tells;

  const MachineCeilings known = ceilings.value_or(MachineCeilings());
  const Bounds bounds = {cost, known,
                         cost.integers ? known.int8_ops_per_second : known.fp32_flops_per_second};
  const double past_at_best =
      bounds.Prefill(static_cast<double>(stats.tokens_prefilled), stats.prefill_work.positions);
  const double at_best = bounds.Prefill(prefill_tokens, work.positions);
  if (prefill_tells && past_at_best > 0) {
    forecast.prefill = stats.prefill_time * (at_best / past_at_best);
  } else if (prefill_tells) {
    forecast.prefill = stats.prefill_time * (prefill_tokens / stats.tokens_prefilled);
  } else if (bounds.known()) {
    forecast.prefill = absl::Seconds(at_best / kAssumedShare);
  }

  // Steps of as many sequences as there are answers; the last ones are less full.
  const double together = static_cast<double>(
      std::max<int64_t>(1, std::min<int64_t>(work.answers, work.max_sequences)));
  const double steps = answer_tokens / together;
  // Of what the longest answers would see, half the square of their length is their own tokens.
  const double most = std::max(1.0, static_cast<double>(work.most_answer_tokens));
  const double part = answer_tokens / most;
  const double own = 0.5 * most * most / std::max(1.0, static_cast<double>(work.answers));
  const auto seen = [own, part](double positions) {
    return std::max(positions - own, 0.0) * part + std::min(positions, own) * part * part;
  };
  const Work planned = {
      .operations =
          2.0 * static_cast<double>(cost.body_parameters + cost.head_parameters) * answer_tokens,
      .bytes =
          static_cast<double>(cost.body_bytes + cost.head_bytes) * steps +
          static_cast<double>(cost.state_bytes) * answer_tokens +
          bounds.Seen(answer_tokens, seen(work.most_answer_reads), &ModelCost::Attention::bytes),
      .positions = seen(work.most_answer_positions)};
  if (bounds.known()) {
    double share = kAssumedShare;
    if (decode_tells) {
      share = bounds.Decode(static_cast<double>(stats.tokens_decoded), stats.decode_work) /
              Seconds(stats.decode_time);
    }
    if (share > 0) forecast.decode = absl::Seconds(bounds.Decode(answer_tokens, planned) / share);
  } else if (decode_tells && stats.inter_token_latency.count > 0) {
    forecast.decode =
        stats.decode_time * (answer_tokens / static_cast<double>(stats.inter_token_latency.count));
  }
  return forecast;
}

}  // namespace lm
