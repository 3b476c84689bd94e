#include "engine/model/rehearsed_step.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/model/step_bounds.h"

namespace lm {
namespace {

constexpr int64_t kAtOnce = kMostSequences + kInteractiveSeats;

ModelStep StepAtTheEnd(const ModelSpec& spec, const CacheShape& cache, int64_t tokens) {
  ModelStep step;
  step.tables.blocks.resize(cache.classes.size());
  const std::vector<int32_t> ids(tokens);
  int64_t left = tokens;
  for (int64_t i = 0; i < kAtOnce && left > 0; ++i) {
    // One token of each sequence that follows.
    const int64_t others = std::min(kAtOnce - i - 1, left - 1);
    const int64_t count = std::min(left - others, spec.context_length);
    step.tables.Append(ids.data(), static_cast<int32_t>(count),
                       static_cast<int32_t>(spec.context_length - count),
                       cache.recurrent() ? 0 : -1);
    for (std::vector<int32_t>& blocks : step.tables.blocks) {
      blocks.resize(blocks.size() + BlocksFor(spec.context_length));
    }
    left -= count;
  }
  return step;
}

}  // namespace

StepBounds StepBoundsOf(const ModelSpec& spec) {
  // The last text of an encoder's step is computed at once.
  const int64_t whole = spec.causal ? 0 : spec.context_length - 1;
  return {.tokens = kMostStepTokens + whole, .context = spec.context_length};
}

RehearsedStep::RehearsedStep(const ModelSpec& spec, const CacheShape& cache, int32_t adapters)
    : spec_(spec), cache_(cache) {
  for (int32_t i = 0; i < adapters; ++i) adapters_.push_back({.adapter = i});
  for (std::vector<uint64_t>& mask : masks_) mask.assign((spec.vocab + 63) / 64, ~uint64_t{0});
  for (int32_t i = 0; i < kRepeatWindow; ++i) {
    context_.push_back(static_cast<int32_t>(i % spec.vocab));
  }
}

ModelStep RehearsedStep::Of(int64_t tokens) const {
  ModelStep step = StepAtTheEnd(spec_, cache_, tokens);
  const auto rows = static_cast<int64_t>(step.tables.tokens.size());
  if (spec_.has_mtp) step.mtp_next.resize(rows);
  AppendAdapted(0, static_cast<int32_t>(rows), adapters_, &step.adapted);
  Sample(rows, &step);
  return step;
}

ModelStep RehearsedStep::OfMtp(int64_t tokens) const {
  ModelStep step = StepAtTheEnd(spec_, cache_, std::min(tokens, kAtOnce));
  const auto rows = static_cast<int64_t>(step.tables.tokens.size());
  for (StepSequence& sequence : step.tables.sequences) sequence.state = -1;
  step.mtp_hidden.resize(rows * spec_.hidden);
  Sample(rows, &step);
  return step;
}

// The last rows.
void RehearsedStep::Sample(int64_t rows, ModelStep* step) const {
  const int64_t scored =
      MostScoredRows(static_cast<int32_t>(spec_.vocab), kMostSequences, kMostStepTokens);
  for (int64_t row = std::max<int64_t>(rows - kAtOnce - scored, 0); row < rows; ++row) {
    SamplingRow sample;
    sample.row = static_cast<int32_t>(row);
    sample.allowed = masks_[row % 2];  // not that of the row before
    sample.context = context_;
    sample.options = {.repeat_penalty = 2, .temperature = 1, .top_p = 0.5};
    step->samples.push_back(std::move(sample));
  }
}

}  // namespace lm
