#include "engine/runtime/make_model_step.h"

#include <algorithm>

namespace lm {
namespace {

// The rows behind which a token of the entry is sampled, where row `begin` of the step is the
// entry's first: that of its last token that is not guessed, and those of the guessed points.
std::vector<int32_t> SampledRows(const StepEntry& entry, int32_t begin) {
  std::vector<int32_t> rows = {begin + entry.num_tokens - entry.num_guessed - 1};
  for (const Sequence::GuessedPoint& point : entry.sequence->guessed_points()) {
    rows.push_back(begin + point.end - entry.sequence->computed() - 1);
  }
  return rows;
}

// Appends the token behind each token of the entry, as ModelStep::mtp_next has them.
void AppendNext(const StepEntry& entry, std::vector<int32_t>* next) {
  const absl::Span<const int32_t> context = entry.sequence->guessed_context();
  const size_t first = entry.sequence->computed() + 1;
  for (size_t i = first; i < first + entry.num_tokens; ++i) {
    next->push_back(i < context.size() ? context[i] : -1);
  }
}

// Appends what is sampled of an entry whose first row is `begin`; with `observed`, the hidden
// states of the sampled rows too.
void AppendSamples(const StepEntry& entry, int32_t begin, bool observed, ModelStep* step) {
  const Sequence& sequence = *entry.sequence;
  const std::vector<int32_t> rows = SampledRows(entry, begin);
  if (sequence.reads_logits()) {
    step->logit_rows.insert(step->logit_rows.end(), rows.begin(), rows.end());
  }
  absl::StatusOr<SamplingRow> sample = sequence.NextSample();
  if (!sample.ok()) return;  // Engine::Advance reports it
  sample->row = rows[0];
  step->samples.push_back(*sample);
  if (observed) step->hidden_rows.insert(step->hidden_rows.end(), rows.begin(), rows.end());
  for (size_t i = 1; i < rows.size(); ++i) {
    SamplingRow& guessed =
        step->samples.emplace_back(sequence.SampleAt(sequence.guessed_points()[i - 1]));
    guessed.row = rows[i];
  }
}

}  // namespace

ModelStep MakeModelStep(const StepPlan& plan, const LanguageModel& model,
                        const Speculator& speculator) {
  ModelStep step;
  step.cache_ops = plan.cache_ops;
  step.wanted_logits = WantedLogits(plan, model.vocab_size());
  step.tables.blocks.resize(model.cache().classes.size());
  for (const StepEntry& entry : plan.entries) {
    const Sequence& sequence = *entry.sequence;
    const BlockTable& table = sequence.block_table();
    step.tables.Append(sequence.guessed_context().data() + sequence.computed(), entry.num_tokens,
                       sequence.computed(), table.state);
    AppendBlocks(table, sequence.computed() + entry.num_tokens, &step.tables);
    const auto end = static_cast<int32_t>(step.tables.tokens.size());
    const int32_t begin = end - entry.num_tokens;
    const bool observed = speculator.Observes(sequence);
    if (observed) {
      step.mtp_next.resize(begin, -1);
      AppendNext(entry, &step.mtp_next);
    }
    for (int32_t i = entry.pooled.begin; i < entry.pooled.end; ++i) {
      step.hidden_rows.push_back(begin + i);
    }
    AppendAdapted(begin, end, sequence.request().spec().adapters, &step.adapted);
    if (entry.samples) {
      AppendSamples(entry, begin, observed, &step);
    } else {
      for (int32_t row = end - entry.num_logits; row < end; ++row) step.logit_rows.push_back(row);
    }
  }
  if (!step.mtp_next.empty()) step.mtp_next.resize(step.tables.tokens.size(), -1);
  return step;
}

ModelStep MakeQueuedStep(size_t num_picked, const LanguageModel& model, StepPlan* plan) {
  ModelStep step;
  step.cache_ops = plan->cache_ops;
  step.tables.blocks.resize(model.cache().classes.size());
  step.tables.num_picked = static_cast<int32_t>(num_picked);
  std::vector<int32_t> tokens;
  for (StepEntry& entry : plan->entries) {
    const Sequence& sequence = *entry.sequence;
    const auto begin = static_cast<int32_t>(step.tables.tokens.size());
    const int32_t known = entry.num_tokens - (entry.sampled >= 0 ? 1 : 0);
    const auto first = sequence.tokens().begin() + entry.first;
    tokens.assign(first, first + known);
    if (entry.sampled >= 0) tokens.push_back(~entry.sampled);
    step.tables.Append(tokens.data(), entry.num_tokens, entry.first, /*state=*/-1);
    AppendBlocks(sequence.block_table(), entry.first + entry.num_tokens, &step.tables);
    const auto end = static_cast<int32_t>(step.tables.tokens.size());
    AppendAdapted(begin, end, sequence.request().spec().adapters, &step.adapted);
    entry.row = end - 1;
    step.samples.push_back({.row = entry.row});
  }
  return step;
}

std::vector<SamplingRow> SamplesOf(const StepPlan& plan) {
  std::vector<SamplingRow> samples;
  for (const StepEntry& entry : plan.entries) {
    if (!entry.samples) continue;
    absl::StatusOr<SamplingRow> sample = entry.sequence->NextSample();
    if (!sample.ok()) continue;  // Engine::Advance reports it
    sample->row = entry.row;
    samples.push_back(*sample);
  }
  return samples;
}

std::vector<uint64_t> WantedLogits(const StepPlan& plan, int32_t vocab_size) {
  const bool all = std::any_of(plan.entries.begin(), plan.entries.end(), [](const StepEntry& e) {
    return e.num_logits > 0 || (e.samples && e.sequence->needs_all_logits());
  });
  if (all) return {};
  std::vector<uint64_t> wanted((vocab_size + 63) / 64);
  auto want = [&wanted](absl::Span<const uint64_t> allowed) {
    for (size_t i = 0; i < std::min(wanted.size(), allowed.size()); ++i) wanted[i] |= allowed[i];
  };
  for (const StepEntry& entry : plan.entries) {
    if (!entry.samples) continue;
    const auto allowed = entry.sequence->AllowedTokens();
    if (!allowed.ok() || allowed->empty()) return {};  // sampling reports the error
    want(*allowed);
    for (const Sequence::GuessedPoint& point : entry.sequence->guessed_points()) {
      want(point.allowed);
    }
  }
  return wanted;
}

}  // namespace lm
