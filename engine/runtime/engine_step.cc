// A step of the engine: what the model is asked for, and what becomes of its answer.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/runtime/engine.h"

namespace lm {
namespace {

// Rows of an entry that begins with row `begin` of the step behind which a token is sampled: the
// last that is not guessed, and those of the guessed points.
std::vector<int32_t> SampledRows(const StepEntry& entry, int32_t begin) {
  std::vector<int32_t> rows = {begin + entry.num_tokens - entry.num_guessed - 1};
  for (const Sequence::GuessedPoint& point : entry.sequence->guessed_points()) {
    rows.push_back(begin + point.end - entry.sequence->computed() - 1);
  }
  return rows;
}

// The tokens behind those of an entry, as ModelStep::mtp_next has them.
void AppendNext(const StepEntry& entry, std::vector<int32_t>* next) {
  const absl::Span<const int32_t> context = entry.sequence->guessed_context();
  const size_t first = entry.sequence->computed() + 1;
  for (size_t i = first; i < first + entry.num_tokens; ++i) {
    next->push_back(i < context.size() ? context[i] : -1);
  }
}

}  // namespace

std::vector<const Request*> Engine::RequestsOf(const StepPlan& plan) {
  std::vector<const Request*> requests;
  for (const StepEntry& entry : plan.entries) requests.push_back(&entry.sequence->request());
  return requests;
}

// Runs the model over the plan; results_ then has what it wants.
absl::Status Engine::RunModel(const StepPlan& plan) {
  const BatchCancellation::Step step(cancellation_.get(), RequestsOf(plan));
  return RunStep(MakeModelStep(plan));
}

absl::Status Engine::RunStep(ModelStep step) {
  results_.cache_ops_done = false;
  const absl::Status status =
      model_->language_model().Run(std::move(step), cancellation_->flag(), &results_);
  if (!results_.cache_ops_done) DistrustBlocks();
  return status;
}

// The block operations of a step failed.
void Engine::DistrustBlocks() {
  scheduler_->DistrustBlocks();
  ops_failed_ = true;
}

ModelStep Engine::MakeModelStep(const StepPlan& plan) const {
  ModelStep step;
  step.cache_ops = plan.cache_ops;
  step.wanted_logits = WantedLogits(plan);
  step.tables.blocks.resize(model_->language_model().cache().classes.size());
  for (const StepEntry& entry : plan.entries) {
    const Sequence& sequence = *entry.sequence;
    const BlockTable& table = sequence.block_table();
    step.tables.Append(sequence.guessed_context().data() + sequence.computed(), entry.num_tokens,
                       sequence.computed(), table.state);
    AppendBlocks(table, sequence.computed() + entry.num_tokens, &step.tables);
    const int32_t end = static_cast<int32_t>(step.tables.tokens.size());
    const int32_t begin = end - entry.num_tokens;
    const bool observed = speculator_->Observes(sequence);
    if (observed) {
      step.mtp_next.resize(begin, -1);
      AppendNext(entry, &step.mtp_next);
    }
    for (int32_t i = entry.pooled.begin; i < entry.pooled.end; ++i) {
      step.hidden_rows.push_back(begin + i);
    }
    AppendAdapted(begin, end, sequence.request().spec().adapters, &step.adapted);
    if (!entry.samples) {
      for (int32_t row = end - entry.num_logits; row < end; ++row) step.logit_rows.push_back(row);
      continue;
    }
    const std::vector<int32_t> rows = SampledRows(entry, begin);
    if (sequence.reads_logits()) {
      step.logit_rows.insert(step.logit_rows.end(), rows.begin(), rows.end());
    }
    absl::StatusOr<SamplingRow> sample = sequence.NextSample();
    if (!sample.ok()) continue;  // Advance reports it
    sample->row = rows[0];
    step.samples.push_back(*sample);
    if (observed) step.hidden_rows.insert(step.hidden_rows.end(), rows.begin(), rows.end());
    for (size_t i = 1; i < rows.size(); ++i) {
      SamplingRow& guessed =
          step.samples.emplace_back(sequence.SampleAt(sequence.guessed_points()[i - 1]));
      guessed.row = rows[i];
    }
  }
  if (!step.mtp_next.empty()) step.mtp_next.resize(step.tables.tokens.size(), -1);
  return step;
}

// The tokens that any sequence of the step allows next, as ModelStep has them; empty where one
// needs all logits.
std::vector<uint64_t> Engine::WantedLogits(const StepPlan& plan) const {
  const bool all = std::any_of(plan.entries.begin(), plan.entries.end(), [](const StepEntry& e) {
    return e.num_logits > 0 || (e.samples && e.sequence->needs_all_logits());
  });
  if (all) return {};
  std::vector<uint64_t> wanted((model_->language_model().vocab_size() + 63) / 64);
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

// Takes the step's results: sequences grow by a token, get their scores or embeddings, or end.
void Engine::Advance(const StepPlan& plan, absl::Time now) {
  auto take = [](size_t values, absl::Span<const float>* from) {
    const absl::Span<const float> taken = from->subspan(0, values);
    from->remove_prefix(values);
    return taken;
  };
  absl::Span<const float> logits = results_.logits, hidden = results_.hidden;
  size_t picked = 0;  // of results_.tokens
  int64_t sampled_rows = 0, missed_rows = 0;
  const size_t logits_width = model_->language_model().vocab_size();
  const size_t hidden_width = model_->language_model().hidden_size();
  for (const StepEntry& entry : plan.entries) {
    Sequence* sequence = entry.sequence;
    const int32_t first_position = sequence->computed();
    scheduler_->Commit(entry, entry.num_tokens - entry.num_guessed);
    if (sequence->TakeStorePoint()) {
      stored_.Write(*sequence, sequence->computed(), sequence->block_table().state);
    }
    absl::Status status;
    absl::StatusOr<std::optional<FinishReason>> end = std::optional<FinishReason>();
    if (sequence->embedding()) {
      for (int32_t i = entry.pooled.begin; i < entry.pooled.end; ++i) {
        status.Update(sequence->Pool(first_position + i, take(hidden_width, &hidden)));
      }
      if (sequence->remaining() == 0) end = FinishReason::kStop;
    } else if (sequence->scoring()) {
      for (int32_t i = 0; i < entry.num_logits; ++i) {
        status.Update(sequence->Score(first_position + i, take(logits_width, &logits)));
      }
      if (sequence->remaining() == 0) end = FinishReason::kStop;
    } else if (entry.samples) {
      const absl::Status known = sequence->AllowedTokens().status();
      const size_t count = known.ok() ? sequence->guessed_points().size() + 1 : 0;
      const auto sampled = absl::MakeConstSpan(results_.tokens).subspan(picked, count);
      const bool late = picked < results_.late.size() && results_.late[picked];
      picked += count;
      const size_t rows = sequence->guessed_points().size() + 1;
      SampledValues values;
      if (sequence->reads_logits()) values.logits = take(rows * logits_width, &logits);
      if (speculator_->Observes(*sequence)) values.hidden = take(count * hidden_width, &hidden);
      end = TakeSamples(entry, known, sampled, values, now);
      scheduler_->Reject(entry);
      ++sampled_rows;
      missed_rows += late || (end.ok() && !end->has_value() && sequence->remaining() > 1);
    }
    if (!status.ok()) end = status;
    EndSequence(sequence, end, now);
  }
  RecordGuesses(plan);
  scheduler_->RecordMissed(sampled_rows, missed_rows);
}

// Takes the tokens that were sampled for an entry: that behind its certain ones, and as long as
// what was guessed is what came those behind it. `values` are of all of them.
absl::StatusOr<std::optional<FinishReason>> Engine::TakeSamples(
    const StepEntry& entry, const absl::Status& known,
    absl::Span<const absl::StatusOr<int32_t>> sampled, const SampledValues& values,
    absl::Time now) {
  Sequence* sequence = entry.sequence;
  const auto before = static_cast<int32_t>(sequence->tokens().size());
  const size_t width = model_->language_model().vocab_size();
  absl::StatusOr<std::optional<FinishReason>> end = std::optional<FinishReason>();
  const size_t points = sequence->guessed_points().size();
  size_t right = 0;  // guessed points
  for (;; ++right) {
    const bool first = sequence->awaits_first_token();
    const absl::Span<const float> row =
        values.logits.empty() ? values.logits : values.logits.subspan(right * width, width);
    end = sequence->TakeSample(known.ok() ? sampled[right] : known, row, now,
                               scheduler_->grammar_work());
    if (!end.ok()) break;
    RecordToken(sequence->last_latency(), first);
    if (end->has_value() || right == points) break;
    const Sequence::GuessedPoint& next = sequence->guessed_points()[right];
    if (!scheduler_->IsReady(sequence) || !sequence->Reaches(next)) break;
    scheduler_->Commit(entry, next.end - sequence->computed());
  }
  if (!values.hidden.empty()) {
    const int32_t certain = entry.first + entry.num_tokens - entry.num_guessed;
    const int32_t behind = right == 0 ? certain : sequence->guessed_points()[right - 1].end;
    const size_t hidden = model_->language_model().hidden_size();
    speculator_->Observe(sequence, behind - 1, values.hidden.subspan(right * hidden, hidden));
  }
  guesses_.drafted += static_cast<int64_t>(points);
  guesses_.accepted += static_cast<int64_t>(right);
  if (entry.speculator_row >= 0) {
    speculator_->Judge(entry.speculator_row, before, !end.ok() || end->has_value());
  }
  return end;
}

}  // namespace lm
