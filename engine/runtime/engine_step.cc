// A step of the engine by itself: the model computes it, and its sequences take the results.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/monotonic_time.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/make_model_step.h"

namespace lm {
namespace {

// Takes the first `count` values from the front of *values.
absl::Span<const float> TakeFront(size_t count, absl::Span<const float>* values) {
  const absl::Span<const float> taken = values->subspan(0, count);
  values->remove_prefix(count);
  return taken;
}

// Adds hidden states (n, width) of the tokens from `position` on to the sequence's embedding.
absl::Status PoolRows(absl::Span<const float> hidden, size_t width, int32_t position,
                      Sequence* sequence) {
  absl::Status status;
  while (!hidden.empty()) {
    status.Update(sequence->Pool(position++, TakeFront(width, &hidden)));
  }
  return status;
}

// Scores tokens by the logits (n, width) of the tokens from `position` on, each before its own.
absl::Status ScoreRows(absl::Span<const float> logits, size_t width, int32_t position,
                       Sequence* sequence) {
  absl::Status status;
  while (!logits.empty()) {
    status.Update(sequence->Score(position++, TakeFront(width, &logits)));
  }
  return status;
}

}  // namespace

// What a step has sampled for an entry, of the row behind its certain tokens and of each guessed
// point.
struct Engine::Sampled {
  absl::Status grammar;  // not OK: what the grammar allows is not known, and nothing was sampled
  absl::Span<const absl::StatusOr<int32_t>> tokens = {};
  absl::Span<const float> logits = {};  // of the rows; empty where they are not read
  absl::Span<const float> hidden = {};  // likewise
};

void Engine::RunAlone(const StepPlan& plan) {
  const StepWork work = work_meter_.Count(plan);
  const MonotonicTime start = MonotonicTime::Now();
  BeginShares(plan, start);
  absl::Status status;
  {
    const BatchCancellation::Step step(cancellation_.get(), RequestsOf(plan));
    status = RunModel(MakeModelStep(plan, model_->language_model(), *speculator_));
  }
  const MonotonicTime end = MonotonicTime::Now();
  weight_layout_.OnStep(end - start);
  EndShares(plan, end);
  if (!status.ok()) return Fail(plan, status);
  RecordStep(plan, work, end - start);
  stored_.WriteFound(plan);
  Advance(plan, end);
}

// Runs the model; results_ then has what the step wants.
absl::Status Engine::RunModel(ModelStep step) {
  const absl::Status status =
      model_->language_model().Run(std::move(step), cancellation_->flag(), &results_);
  if (!results_.cache_ops_left.empty()) DistrustBlocks();
  return status;
}

// The cache operations of a step failed.
void Engine::DistrustBlocks() {
  scheduler_->DistrustBlocks();
  ops_failed_ = true;
}

void Engine::RecordStep(const StepPlan& plan, const StepWork& work, absl::Duration took) {
  const StepTokens tokens = CountTokens(plan);
  pacer_.Record(static_cast<int32_t>(tokens.prefilled), took);
  if (tokens.prefilled == 0) speculator_->Record(static_cast<int32_t>(tokens.decoded), took);
  absl::MutexLock lock(&mutex_);
  counts_.AddStep(plan, tokens, work, took);
}

// Takes the step's results: sequences grow by a token, get their scores or embeddings, or end.
void Engine::Advance(const StepPlan& plan, MonotonicTime now) {
  const LanguageModel& model = model_->language_model();
  const size_t logits_width = model.vocab_size(), hidden_width = model.hidden_size();
  absl::Span<const float> logits = results_.logits, hidden = results_.hidden;
  size_t picked = 0;  // of results_.tokens
  int64_t sampled_rows = 0, missed_rows = 0;
  Guesses guesses;
  for (const StepEntry& entry : plan.entries) {
    Sequence* sequence = entry.sequence;
    scheduler_->Commit(entry, entry.num_tokens - entry.num_guessed);
    if (sequence->TakeStorePoint()) {
      stored_.Write(*sequence, sequence->computed(), sequence->block_table().state);
    }
    absl::StatusOr<std::optional<FinishReason>> end = std::optional<FinishReason>();
    if (sequence->embedding()) {
      const Sequence::Range pooled = entry.pooled;
      const auto rows = TakeFront((pooled.end - pooled.begin) * hidden_width, &hidden);
      const absl::Status status =
          PoolRows(rows, hidden_width, entry.first + pooled.begin, sequence);
      if (sequence->remaining() == 0) end = FinishReason::kStop;
      if (!status.ok()) end = status;
    } else if (sequence->scoring()) {
      const auto rows = TakeFront(entry.num_logits * logits_width, &logits);
      const absl::Status status = ScoreRows(rows, logits_width, entry.first, sequence);
      if (sequence->remaining() == 0) end = FinishReason::kStop;
      if (!status.ok()) end = status;
    } else if (entry.samples) {
      Sampled sampled{.grammar = sequence->AllowedTokens().status()};
      const size_t rows = sequence->guessed_points().size() + 1;
      const size_t count = sampled.grammar.ok() ? rows : 0;
      sampled.tokens = absl::MakeConstSpan(results_.tokens).subspan(picked, count);
      const bool late = picked < results_.late.size() && results_.late[picked];
      picked += count;
      if (sequence->reads_logits()) sampled.logits = TakeFront(rows * logits_width, &logits);
      if (speculator_->Observes(*sequence)) {
        sampled.hidden = TakeFront(count * hidden_width, &hidden);
      }
      end = TakeSamples(entry, sampled, now, &guesses);
      scheduler_->Reject(entry);
      ++sampled_rows;
      missed_rows += late || (end.ok() && !end->has_value() && sequence->remaining() > 1);
    }
    EndSequence(sequence, end, now);
  }
  if (guesses.drafted > 0) {
    const auto rows = std::count_if(plan.entries.begin(), plan.entries.end(),
                                    [](const StepEntry& e) { return e.samples; });
    absl::MutexLock lock(&mutex_);
    counts_.AddGuesses(guesses.drafted, guesses.accepted, rows);
  }
  scheduler_->RecordMissed(sampled_rows, missed_rows);
}

// Takes the token that was sampled behind the entry's certain tokens, and then, as long as the
// tokens taken are those that were guessed, the one sampled at the next guessed point.
absl::StatusOr<std::optional<FinishReason>> Engine::TakeSamples(const StepEntry& entry,
                                                                const Sampled& sampled,
                                                                MonotonicTime now,
                                                                Guesses* guesses) {
  Sequence* sequence = entry.sequence;
  const auto before = static_cast<int32_t>(sequence->tokens().size());
  const size_t width = model_->language_model().vocab_size();
  absl::StatusOr<std::optional<FinishReason>> end = std::optional<FinishReason>();
  const size_t points = sequence->guessed_points().size();
  size_t right = 0;  // guessed points
  for (;; ++right) {
    const bool first = sequence->awaits_first_token();
    const absl::Span<const float> row =
        sampled.logits.empty() ? sampled.logits : sampled.logits.subspan(right * width, width);
    end = sequence->TakeSample(sampled.grammar.ok() ? sampled.tokens[right] : sampled.grammar, row,
                               now, scheduler_->grammar_work());
    if (!end.ok()) break;
    {
      absl::MutexLock lock(&mutex_);
      counts_.AddToken(sequence->last_latency(), first);
    }
    if (end->has_value() || right == points) break;
    const Sequence::GuessedPoint& next = sequence->guessed_points()[right];
    if (!scheduler_->IsReady(sequence) || !sequence->Reaches(next)) break;
    scheduler_->Commit(entry, next.end - sequence->computed());
  }
  if (!sampled.hidden.empty()) {
    const int32_t certain = entry.first + entry.num_tokens - entry.num_guessed;
    const int32_t behind = right == 0 ? certain : sequence->guessed_points()[right - 1].end;
    const size_t hidden = model_->language_model().hidden_size();
    speculator_->Observe(sequence, behind - 1, sampled.hidden.subspan(right * hidden, hidden));
  }
  guesses->drafted += static_cast<int64_t>(points);
  guesses->accepted += static_cast<int64_t>(right);
  if (entry.speculator_row >= 0) {
    speculator_->Judge(entry.speculator_row, before, !end.ok() || end->has_value());
  }
  return end;
}

}  // namespace lm
