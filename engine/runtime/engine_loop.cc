// The engine's thread.
#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "engine/base/exit_guard.h"
#include "engine/base/json.h"
#include "engine/base/out_of_memory.h"
#include "engine/runtime/draft_model.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/mtp_drafter.h"
#include "engine/runtime/prompt_lookup.h"

namespace lm {

void Engine::Run() {
  ExitGuard guard([](void* engine) { static_cast<Engine*>(engine)->AskToStop(); }, this);
  if (!guard.allowed()) AskToStop();
  ReadyToThrow();
  while (WaitForWork()) {
    try {
      AnswerInspections();
      EndLoads();
      TakeIncoming();
      Step();
      recovered_ = false;
    } catch (...) {  // memory; the process is somebody else's and must live
      Recover();
    }
  }
  if (scheduler_ != nullptr) {
    try {
      TakeIncoming();
      if (loader_ != nullptr) loader_->Drain();
      scheduler_->EndLoads();
      FailAll(absl::CancelledError("the engine was stopped"));
      Deliver();
    } catch (...) {
    }
  }
  DropScheduled();
  DropQueued();
  if (store_ != nullptr) store_->Flush();
}

// {"name": ..., "scale": ...} of each, as the option `lora` takes them; empty for none.
std::string Engine::AdaptersText(const AdapterSet& adapters) const {
  if (adapters.empty()) return "";
  Json array = Json::MakeArray();
  for (const AdapterUse& use : adapters) {
    Json one = Json::MakeObject();
    one.Add("name", model_->info().adapters[use.adapter].name);
    one.Add("scale", double{use.scale});
    array.Append(std::move(one));
  }
  return array.Dump();
}

bool Engine::WaitForWork() {
  absl::MutexLock lock(&mutex_);
  auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || loaded_ || !incoming_.empty() || !inspections_.empty();
  };
  if (scheduler_ != nullptr && scheduler_->idle()) {
    mutex_.Await(absl::Condition(&has_work));
  } else if (only_loads_) {  // those that wait may be abandoned meanwhile
    mutex_.AwaitWithTimeout(absl::Condition(&has_work), absl::Milliseconds(20));
  }
  return !stopping_;
}

void Engine::AnswerInspections() {
  for (;;) {
    std::shared_ptr<CacheInspection> inspection;
    {
      absl::MutexLock lock(&mutex_);
      if (inspections_.empty()) return;
      inspection = inspections_.front();
    }
    std::vector<PrefixTree::Run> runs = scheduler_->blocks().CachedRuns(inspection->salt());
    {
      absl::MutexLock lock(&mutex_);
      inspections_.pop_front();
    }
    inspection->Finish(std::move(runs));
  }
}

void Engine::TakeIncoming() {
  for (;;) {
    std::unique_ptr<Sequence> sequence;
    {
      absl::MutexLock lock(&mutex_);
      if (incoming_.empty()) return;
      sequence =
          std::make_unique<Sequence>(incoming_.front(), &model_->tokenizer(), max_sequence_tokens_,
                                     model_->language_model().cache().recurrent(),
                                     AdaptersText(incoming_.front()->spec().adapters));
      incoming_.pop_front();
      ++num_waiting_;
    }
    if (store_ != nullptr && !sequence->wants_every_token()) {
      PrefixKey key =
          PrefixStore::KeyOf(sequence->salt(), StoredAdapters(sequence->request().spec().adapters));
      const int64_t sighted =
          key.owner.empty()
              ? 0
              : sightings_.See(key.owner + key.adapters,
                               sequence->tokens().subspan(0, sequence->tokens().size() - 1));
      sequence->set_store_key(std::move(key), sighted);
    }
    // One that was abandoned while it lay in incoming_ was counted before anybody could look for
    // it.
    look_for_abandoned_ = look_for_abandoned_ || sequence->request().abandoned();
    if (const std::optional<FinishReason> end = sequence->trivial_end()) {
      Generation result = sequence->TakeResult(*end, absl::Now());
      Finish(std::move(sequence), std::move(result));
    } else {
      scheduler_->Add(std::move(sequence));
    }
  }
}

// Schedules a batch, runs the model over it, samples, and hands out what is finished.
void Engine::Step() {
  DropAbandoned();
  FollowGrammars();
  StepPlan plan = scheduler_->Schedule(MakePromptLimits());
  ReportQueue();
  const absl::Status ops = plan.loads.empty() ? absl::OkStatus() : CarryOut(&plan);
  only_loads_ =
      plan.entries.empty() && scheduler_->num_loading() > 0 && scheduler_->num_following() == 0;
  if (absl::IsUnavailable(ops)) {
    LoseDevice(ops);
  } else if (!ops.ok()) {
    FailBatch(plan, ops);
  } else if (!plan.entries.empty()) {
    const StepWork work = work_meter_.Count(plan);
    int32_t tokens = 0;
    for (const StepEntry& entry : plan.entries) tokens += entry.num_tokens;
    const absl::Time start = absl::Now();
    for (const StepEntry& e : plan.entries) e.sequence->BeginShare(e.num_tokens, tokens, start);
    const absl::Status status = RunModel(plan);
    const absl::Time end = absl::Now();
    for (const StepEntry& e : plan.entries) e.sequence->EndShare(end);
    if (status.ok()) {
      RecordStep(plan, work, end - start);
      if (store_ != nullptr) StoreFound(plan);
      Advance(plan, end);
    } else if (absl::IsUnavailable(status)) {
      LoseDevice(status);
    } else {
      FailBatch(plan, status);
    }
  } else if (!only_loads_ && !scheduler_->idle() && scheduler_->num_following() == 0) {
    FailAll(absl::InternalError("the scheduler found nothing to do although requests wait"));
  }
  Deliver();
}

// Takes out the sequences that nobody waits for any more and those that are out of time.
void Engine::DropAbandoned() {
  const uint64_t cancels = cancellation_->num_cancels();
  if (cancels == cancels_seen_ && !look_for_abandoned_) return;
  cancels_seen_ = cancels;
  look_for_abandoned_ = false;
  const absl::Time now = absl::Now();
  auto dropped =
      scheduler_->TakeIf([](const Sequence& sequence) { return sequence.request().abandoned(); });
  for (std::unique_ptr<Sequence>& sequence : dropped) {
    Generation result = sequence->TakeError(sequence->request().AbandonedStatus(), now);
    Finish(std::move(sequence), std::move(result));
  }
}

// Gives those that wait for their grammars a turn.
void Engine::FollowGrammars() {
  const std::vector<Scheduler::FollowedToEnd> ended = scheduler_->FollowGrammars();
  if (ended.empty()) return;
  const absl::Time now = absl::Now();
  for (const auto& [sequence, end] : ended) EndSequence(sequence, end, now);
}

// Finishes a running sequence where its answer, or an error, says so.
void Engine::EndSequence(Sequence* sequence, const absl::StatusOr<std::optional<FinishReason>>& end,
                         absl::Time now) {
  if (!end.ok()) {
    Generation error = sequence->TakeError(end.status(), now);
    Finish(scheduler_->Finish(sequence, /*keep=*/false), std::move(error));
  } else if (end->has_value()) {
    Generation result = sequence->TakeResult(**end, now);
    if (result.status.ok() && sequence->embedding()) {
      absl::StatusOr<std::vector<float>> made =
          model_->language_model().ApplyHead(sequence->request().spec().ranks, result.embedding);
      if (made.ok()) {
        result.embedding = *std::move(made);
      } else {
        result = sequence->TakeError(made.status(), now);
      }
    }
    Finish(scheduler_->Finish(sequence, /*keep=*/true), std::move(result));
  }
}

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

// Runs the model over the plan; results_ then has what it wants.
absl::Status Engine::RunModel(const StepPlan& plan) {
  std::vector<const Request*> requests;
  for (const StepEntry& entry : plan.entries) requests.push_back(&entry.sequence->request());
  const BatchCancellation::Step step(cancellation_.get(), std::move(requests));
  return RunStep(MakeModelStep(plan));
}

absl::Status Engine::RunStep(ModelStep step) {
  LanguageModel& model = model_->language_model();
  absl::Status status = model.Launch(std::move(step));
  results_.cache_ops_done = false;
  if (status.ok()) status = model.Await(cancellation_->flag(), &results_);
  if (!results_.cache_ops_done) scheduler_->DistrustBlocks();
  return status;
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
  const size_t logits_width = model_->language_model().vocab_size();
  const size_t hidden_width = model_->language_model().hidden_size();
  for (const StepEntry& entry : plan.entries) {
    Sequence* sequence = entry.sequence;
    const int32_t first_position = sequence->computed();
    scheduler_->Commit(entry, entry.num_tokens - entry.num_guessed);
    if (sequence->TakeStorePoint()) {
      StorePrefix(*sequence, sequence->computed(), sequence->block_table().state);
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
      picked += count;
      const size_t rows = sequence->guessed_points().size() + 1;
      SampledValues values;
      if (sequence->reads_logits()) values.logits = take(rows * logits_width, &logits);
      if (speculator_->Observes(*sequence)) values.hidden = take(count * hidden_width, &hidden);
      end = TakeSamples(entry, known, sampled, values, now);
      scheduler_->Reject(entry);
    }
    if (!status.ok()) end = status;
    EndSequence(sequence, end, now);
  }
  RecordGuesses(plan);
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

// The forward pass failed, or was cut short because nobody waited for it any more.
void Engine::FailBatch(const StepPlan& plan, const absl::Status& status) {
  const bool abandoned =
      std::all_of(plan.entries.begin(), plan.entries.end(),
                  [](const StepEntry& e) { return e.sequence->request().abandoned(); });
  if (abandoned || cancellation_->stopped()) return;  // the next step, or the end, drops them
  const absl::Time now = absl::Now();
  for (const StepEntry& entry : plan.entries) {
    Generation error = entry.sequence->TakeError(status, now);
    Finish(scheduler_->Finish(entry.sequence, /*keep=*/false), std::move(error));
  }
}

void Engine::FailAll(const absl::Status& status) {
  const absl::Time now = absl::Now();
  for (auto& sequence : scheduler_->TakeIf([](const Sequence&) { return true; })) {
    Generation error = sequence->TakeError(status, now);
    Finish(std::move(sequence), std::move(error));
  }
}

// Nothing of the model is there any more. Who asks next has it loaded anew (generator_registry.h).
void Engine::LoseDevice(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (accepting_.ok()) accepting_ = status;
  }
  FailAll(status);
}

void Engine::Finish(std::unique_ptr<Sequence> sequence, Generation result) {
  const bool answered = result.status.ok() && !sequence->scoring() && !sequence->embedding();
  if (answered) speculator_->Learn(*sequence);
  finished_.push_back({std::move(sequence), std::move(result)});
}

// Hands out what is finished, after the statistics tell of it: who waits may look at once.
void Engine::Deliver() {
  ReportQueue();
  {
    absl::MutexLock lock(&mutex_);
    for (const Finished& f : finished_) {
      log_.Add(f.sequence->request(), f.result);
      Count(f, &counts_.Of(f.sequence->salt()));
    }
    for (const Finished& f : finished_) stats_.failed += !f.result.status.ok();
    stats_.requests += static_cast<int64_t>(finished_.size());
  }
  for (Finished& f : finished_) f.sequence->Deliver(std::move(f.result));
  finished_.clear();
}

void Engine::Count(const Finished& finished, RequestCounts* counts) {
  const Generation& result = finished.result;
  const int64_t computed =
      std::min<int64_t>(finished.sequence->computed(), result.tokens_in) - result.tokens_cached;
  ++counts->requests;
  counts->failed += !result.status.ok();
  counts->tokens_prefilled += std::max<int64_t>(computed, 0);
  counts->tokens_reused += result.tokens_cached;
  counts->tokens_decoded += result.tokens_out;
}

void Engine::ReportQueue() {
  absl::MutexLock lock(&mutex_);
  num_waiting_ = scheduler_->num_waiting();
  stats_.running = scheduler_->num_running();
  stats_.kv_blocks_free = scheduler_->blocks().num_free();
  stats_.kv_blocks_cached = scheduler_->blocks().num_cached();
  stats_.kv_bytes_free = scheduler_->blocks().free_bytes();
  stats_.kv_bytes_cached = scheduler_->blocks().cached_bytes();
}

PromptLimits Engine::MakePromptLimits() const {
  auto tokens = [this](absl::Duration itl) {
    return pacer_.PromptTokens(itl, options_.step_tokens);
  };
  return {.beside_interactive = tokens(options_.interactive_itl),
          .beside_batch = tokens(options_.batch_itl),
          .token_seconds = pacer_.token_seconds()};
}

void Engine::RecordStep(const StepPlan& plan, const StepWork& work, absl::Duration took) {
  int64_t prefilled = 0, decoded = 0, guessed = 0;  // the last: behind prompts
  int64_t rows = 0;                                 // that decode
  for (const StepEntry& entry : plan.entries) {
    (entry.decode ? decoded : prefilled) += entry.num_tokens;
    if (!entry.decode) guessed += entry.num_guessed;
    rows += entry.decode;
  }
  pacer_.Record(static_cast<int32_t>(prefilled), took);
  if (prefilled == 0) {
    speculator_->Record(static_cast<int32_t>(decoded), took);
  }
  const absl::Duration per_token = took / (prefilled + decoded);
  absl::MutexLock lock(&mutex_);
  ++stats_.steps;
  stats_.decode_steps += decoded > 0;
  stats_.decode_rows += rows;
  stats_.tokens_prefilled += prefilled - guessed;
  stats_.prefill_time += per_token * prefilled;
  stats_.decode_time += per_token * decoded;
  stats_.prefill_work += work.prefill;
  stats_.decode_work += work.decode;
  stats_.tokens_reused += plan.tokens_reused;
  stats_.preemptions += plan.preemptions;
}

// What became of the step's guesses.
void Engine::RecordGuesses(const StepPlan& plan) {
  if (guesses_.drafted == 0) return;
  const auto rows = std::count_if(plan.entries.begin(), plan.entries.end(),
                                  [](const StepEntry& e) { return e.samples; });
  absl::MutexLock lock(&mutex_);
  stats_.tokens_drafted += guesses_.drafted;
  stats_.tokens_accepted += guesses_.accepted;
  stats_.steps_saved += static_cast<double>(guesses_.accepted) / static_cast<double>(rows);
  guesses_ = {};
}

void Engine::RecordToken(absl::Duration latency, bool first) {
  absl::MutexLock lock(&mutex_);
  ++stats_.tokens_decoded;
  (first ? time_to_first_token_ : inter_token_latency_).Add(latency);
}

std::unique_ptr<Scheduler> Engine::MakeScheduler() const {
  // Of the memory for logits, what decoding sequences do not need is for prompts being scored.
  constexpr int64_t kMaxLogitBytes = 64 << 20;
  const LanguageModel& model = model_->language_model();
  const int64_t rows = kMaxLogitBytes / (int64_t{model.vocab_size()} * sizeof(float));
  return std::make_unique<Scheduler>(
      SchedulerOptions{.step_tokens = options_.step_tokens,
                       .max_sequences = options_.max_sequences,
                       .max_scored_rows = static_cast<int32_t>(std::clamp<int64_t>(
                           rows - options_.max_sequences, 1, options_.step_tokens)),
                       .cache = model.cache(),
                       .prefix_cache = options_.prefix_cache && !model.cache().whole_sequences,
                       .grammar_work = options_.grammar_work,
                       .speculator = speculator_.get(),
                       .store = store_.get()});
}

std::unique_ptr<Speculator> Engine::MakeSpeculator() const {
  std::unique_ptr<ModelDrafter> draft;
  if (Model* model = model_->draft()) {
    draft = std::make_unique<DraftModel>(&model->language_model(), &cancellation_->flag());
  } else if (LanguageModel& own = model_->language_model(); own.has_mtp()) {
    draft = std::make_unique<MtpDrafter>(&own, &cancellation_->flag());
  }
  return std::make_unique<Speculator>(std::make_unique<PromptLookup>(), std::move(draft));
}

// Ends, with an error, all that has been taken, without an allocation: a sequence that goes
// finishes its request. So do questions about the cache, which goes with it.
void Engine::DropScheduled() noexcept {
  {
    absl::MutexLock lock(&mutex_);
    int64_t lost = static_cast<int64_t>(finished_.size());
    if (scheduler_ != nullptr) lost += scheduler_->num_running() + scheduler_->num_waiting();
    stats_.requests += lost;
    stats_.failed += lost;
    num_waiting_ = 0;
  }
  finished_.clear();
  if (loader_ != nullptr) loader_->Drain();  // what it writes to are their blocks
  scheduler_ = nullptr;
  for (;;) {
    std::shared_ptr<CacheInspection> inspection;
    {
      absl::MutexLock lock(&mutex_);
      if (inspections_.empty()) return;
      inspection = std::move(inspections_.front());
      inspections_.pop_front();
    }
    inspection->Finish(OutOfMemory());
  }
}

// Likewise all that has not been taken yet.
void Engine::DropQueued() noexcept {
  for (;;) {
    std::shared_ptr<Request> request;
    {
      absl::MutexLock lock(&mutex_);
      if (incoming_.empty()) return;
      request = std::move(incoming_.front());
      incoming_.pop_front();
      ++stats_.requests;
      ++stats_.failed;
    }
    Generation lost;
    lost.status = OutOfMemory();
    request->Finish(std::move(lost));
  }
}

// An allocation failed somewhere. What was under way fails, and the cache begins again with
// nothing. What has come since is begun once more; where memory fails again at once, or for that,
// nobody waits until there is some: requests fail until then.
void Engine::Recover() noexcept {
  DropScheduled();
  for (bool again = std::exchange(recovered_, true);; again = true) {
    if (again) DropQueued();
    try {
      speculator_ = MakeSpeculator();
      scheduler_ = MakeScheduler();
      scheduler_->DistrustBlocks();
      ReportQueue();
      return;
    } catch (...) {
      scheduler_ = nullptr;
    }
    absl::MutexLock lock(&mutex_);
    auto wanted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || !incoming_.empty() || !inspections_.empty();
    };
    mutex_.AwaitWithTimeout(absl::Condition(&wanted), absl::Milliseconds(10));
    if (stopping_) return;
  }
}

}  // namespace lm
