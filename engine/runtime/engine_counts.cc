#include "engine/runtime/engine_counts.h"

#include <algorithm>
#include <utility>

namespace lm {
namespace {

void CountForSalt(const EndedSequence& ended, RequestCounts* counts) {
  const Generation& result = ended.result;
  const int64_t computed =
      std::min<int64_t>(ended.sequence->computed(), result.tokens_in) - result.tokens_cached;
  ++counts->requests;
  counts->failed += IsFailure(result.status);
  counts->tokens_prefilled += std::max<int64_t>(computed, 0);
  counts->tokens_reused += result.tokens_cached;
  counts->tokens_decoded += result.tokens_out;
}

// Whether it has an answer whose length the model chose: not a constraint, a score or an embedding.
bool IsFreeAnswer(const EndedSequence& ended) {
  const RequestSpec& spec = ended.sequence->request().spec();
  return ended.result.status.ok() &&
         spec.options.constraint.kind == AnswerConstraint::Kind::kNone &&
         !spec.wants_first_choices && !spec.score_prompt && !spec.embed.has_value();
}

}  // namespace

EngineCounts::EngineCounts(const CacheShape& cache, std::string draft_model) {
  stats_.draft_model = std::move(draft_model);
  stats_.kv_blocks_total = cache.classes[0].num_blocks;
  stats_.kv_blocks_free = stats_.kv_blocks_total;
  for (const CacheClass& c : cache.classes) stats_.kv_block_bytes += c.block_bytes;
  stats_.kv_bytes_total = cache.bytes();
  stats_.kv_bytes_free = stats_.kv_bytes_total;
}

void EngineCounts::AddStep(const StepPlan& plan, const StepTokens& tokens, const StepWork& work,
                           absl::Duration took) {
  const absl::Duration per_token = took / (tokens.prefilled + tokens.decoded);
  ++stats_.steps;
  stats_.early_steps += plan.follows;
  stats_.decode_steps += tokens.decoded > 0;
  stats_.decode_rows += tokens.rows;
  stats_.tokens_prefilled += tokens.prefilled - tokens.guessed;
  stats_.prefill_time += per_token * tokens.prefilled;
  stats_.decode_time += per_token * tokens.decoded;
  stats_.prefill_work += work.prefill;
  stats_.decode_work += work.decode;
  stats_.tokens_reused += plan.tokens_reused;
  stats_.preemptions += plan.preemptions;
}

void EngineCounts::AddGuesses(int64_t drafted, int64_t accepted, int64_t rows) {
  stats_.tokens_drafted += drafted;
  stats_.tokens_accepted += accepted;
  stats_.steps_saved += static_cast<double>(accepted) / static_cast<double>(rows);
}

void EngineCounts::AddToken(absl::Duration latency, bool first) {
  ++stats_.tokens_decoded;
  (first ? time_to_first_token_ : inter_token_latency_).Add(latency);
}

void EngineCounts::AddEnded(absl::Span<const EndedSequence> ended) {
  for (const EndedSequence& e : ended) {
    log_.Add(e.sequence->request(), e.result);
    CountForSalt(e, &of_salts_.Of(e.sequence->salt()));
    if (IsFreeAnswer(e)) {
      stats_.free_answers += e.result.finish == FinishReason::kStop;
      stats_.free_answer_tokens += e.result.tokens_out;
    }
    stats_.failed += IsFailure(e.result.status);
  }
  stats_.requests += static_cast<int64_t>(ended.size());
}

void EngineCounts::AddLost(int64_t requests) noexcept {
  stats_.requests += requests;
  stats_.failed += requests;
}

void EngineCounts::SetScheduled(const Scheduler& scheduler) {
  const BlockManager& blocks = scheduler.blocks();
  stats_.running = scheduler.num_running();
  stats_.kv_blocks_free = blocks.num_free();
  stats_.kv_blocks_cached = blocks.num_cached();
  stats_.kv_bytes_free = blocks.free_bytes();
  stats_.kv_bytes_cached = blocks.cached_bytes();
}

void EngineCounts::SetLaidOut(bool more) {
  if (!more) {
    if (laying_out_) before_laid_out_ = Stats();
    stats_.laid_out = true;
  }
  laying_out_ = more;
}

EngineStats EngineCounts::Stats() const {
  EngineStats stats = stats_;
  stats.time_to_first_token = time_to_first_token_.Summary();
  stats.inter_token_latency = inter_token_latency_.Summary();
  return stats;
}

EngineStats EngineCounts::StatsSinceLaidOut() const {
  const EngineStats now = Stats();
  return Between(laying_out_ ? now : before_laid_out_, now);
}

}  // namespace lm
