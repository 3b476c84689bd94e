#include "engine/runtime/engine.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/backend/backend.h"
#include "engine/base/exit_guard.h"
#include "engine/base/own_thread.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/draft_model.h"
#include "engine/runtime/mtp_drafter.h"
#include "engine/runtime/prompt_lookup.h"

namespace lm {
namespace {

int32_t MaxSequenceTokens(const LanguageModel& model) {
  const int64_t cache_tokens = int64_t{model.cache().classes[0].num_blocks} * kKvBlockTokens;
  return static_cast<int32_t>(std::min<int64_t>(model.context_length(), cache_tokens));
}

// EngineStats::draft_model.
std::string DraftNameOf(Model& model) {
  if (const Model* draft = model.draft()) return draft->info().name;
  return model.language_model().has_mtp() ? "its own layer" : "";
}

}  // namespace

absl::StatusOr<std::shared_ptr<Engine>> Engine::Start(std::unique_ptr<Model> model,
                                                      const EngineOptions& options) {
  auto engine = std::unique_ptr<Engine>(new Engine(std::move(model), options));
  try {
    engine->thread_ = StartThread([engine = engine.get()] { engine->Run(); });
  } catch (const std::system_error& e) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the engine's thread could not be started: ", e.what()));
  }
  // In a forked child the thread does not exist and its data may be half written: leave both alone.
  return std::shared_ptr<Engine>(engine.release(), [](Engine* engine) {
    if (engine->fork_guard_.forked()) return;
    // Once exit() has begun, what the model would give back may be gone, and its thread has
    // stopped.
    ExitGuard guard;
    if (guard.allowed()) delete engine;
  });
}

Engine::Engine(std::unique_ptr<Model> model, const EngineOptions& options)
    : model_(std::move(model)),
      options_(options),
      max_sequence_tokens_(MaxSequenceTokens(model_->language_model())),
      cancellation_(std::make_shared<BatchCancellation>()),
      raises_(std::make_shared<std::atomic<uint64_t>>(0)),
      constraints_(std::make_unique<ConstraintCache>(&model_->tokenizer())),
      counts_(model_->language_model().cache(), DraftNameOf(*model_)),
      stored_(model_.get(), cancellation_.get(),
              [this] {
                {
                  absl::MutexLock lock(&mutex_);
                  loaded_ = true;
                }
                news_.SignalAll();
              }),
      speculator_(MakeSpeculator()),
      scheduler_(MakeScheduler()),
      work_meter_(model_->info().cost, model_->language_model().cache()),
      weight_layout_(model_.get()) {
  stored_.Prepare();
}

std::unique_ptr<Scheduler> Engine::MakeScheduler() const {
  const LanguageModel& model = model_->language_model();
  return std::make_unique<Scheduler>(SchedulerOptions{
      .step_tokens = options_.step_tokens,
      .max_sequences = options_.max_sequences,
      .max_logit_rows =
          MostScoredRows(model.vocab_size(), options_.max_sequences, options_.step_tokens),
      .cache = model.cache(),
      .prefix_cache = options_.prefix_cache && !model.cache().whole_sequences,
      .grammar_work = options_.grammar_work,
      .speculator = speculator_.get(),
      .store = stored_.store()});
}

std::unique_ptr<Speculator> Engine::MakeSpeculator() const {
  std::unique_ptr<ModelDrafter> draft;
  if (Model* model = model_->draft()) {
    draft = std::make_unique<DraftModel>(
        &model->language_model(), model_->language_model().vocab_size(), &cancellation_->flag());
  } else if (LanguageModel& own = model_->language_model(); own.has_mtp()) {
    draft = std::make_unique<MtpDrafter>(&own, &cancellation_->flag());
  }
  return std::make_unique<Speculator>(std::make_unique<PromptLookup>(), std::move(draft));
}

Engine::~Engine() { Stop(); }

void Engine::Stop() {
  if (fork_guard_.forked()) return;
  AskToStop();
  absl::call_once(join_once_, [this] {
    if (thread_.joinable()) thread_.join();
  });
}

void Engine::AskToStop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    if (accepting_.ok()) {
      accepting_ = stopped_;
    }
  }
  news_.SignalAll();
  cancellation_->Stop();
}

absl::StatusOr<std::shared_ptr<Request>> Engine::Submit(RequestSpec spec,
                                                        std::shared_ptr<RequestListener> listener) {
  if (fork_guard_.forked()) return ForkGuard::Error();
  RETURN_IF_ERROR(Validate(spec));
  const bool answers = !spec.score_prompt && !spec.embed.has_value();
  if (answers && spec.options.constraint.kind != AnswerConstraint::Kind::kNone) {
    ASSIGN_OR_RETURN(spec.constraint, constraints_->Get(spec.options.constraint));
  }
  auto request = std::make_shared<Request>(std::move(spec));
  request->set_cancellation(cancellation_);
  request->set_raises(raises_);
  request->set_listener(std::move(listener));
  if (answers) stored_.Look();
  {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(accepting_);
    const int64_t queued = num_queued();
    if (queued >= options_.max_queued) {
      return absl::ResourceExhaustedError(absl::StrCat("the engine's queue is full: ", queued,
                                                       " requests wait, at most ",
                                                       options_.max_queued, " may"));
    }
    incoming_.push_back(request);
  }
  news_.SignalAll();
  return request;
}

absl::Status Engine::CheckConstraint(const GenerationOptions& options) const {
  return CompiledConstraintOf(options).status();
}

absl::StatusOr<std::shared_ptr<const CompiledConstraint>> Engine::CompiledConstraintOf(
    const GenerationOptions& options) const {
  if (fork_guard_.forked()) return ForkGuard::Error();
  if (options.constraint.kind == AnswerConstraint::Kind::kNone) return nullptr;
  return constraints_->Get(options.constraint);
}

absl::Status Engine::Validate(const RequestSpec& spec) const {
  const LanguageModel& model = model_->language_model();
  const int32_t vocab_size = model.vocab_size();
  auto outside = [vocab_size](int32_t token, absl::string_view of) {
    return absl::InvalidArgumentError(
        absl::StrCat("token ", token, " of ", of, " is not in the vocabulary of ", vocab_size));
  };
  const ModelInfo& info = model_->info();
  if (!spec.embed.has_value()) RETURN_IF_ERROR(CheckGenerates(info));
  if (spec.ranks) RETURN_IF_ERROR(CheckRanks(info));
  if (spec.prompt.empty()) return absl::InvalidArgumentError("the prompt has no tokens");
  const int64_t tokens = static_cast<int64_t>(spec.prompt.size());
  const int64_t for_answer = spec.score_prompt || spec.embed.has_value() ? 0 : 1;
  if (tokens + for_answer > max_sequence_tokens_) {
    return absl::OutOfRangeError(absl::StrCat(
        "the prompt has ", tokens, " tokens, the ",
        max_sequence_tokens_ == model.context_length() ? "context" : "KV cache (kv_bytes)",
        " holds ", max_sequence_tokens_, for_answer ? ", and at least one is for the answer" : ""));
  }
  for (size_t i = 0; i < spec.adapters.size(); ++i) {
    const int32_t adapter = spec.adapters[i].adapter;
    const int32_t least = i == 0 ? 0 : spec.adapters[i - 1].adapter + 1;
    if (adapter < least || adapter >= static_cast<int32_t>(info.adapters.size())) {
      return absl::InvalidArgumentError(absl::StrCat("adapters must ascend and be below ",
                                                     info.adapters.size(), ", got ", adapter));
    }
  }
  for (int32_t token : spec.prompt) {
    if (token < 0 || token >= vocab_size) return outside(token, "the prompt");
  }
  RETURN_IF_ERROR(ValidateGenerationOptions(spec.options));
  for (const auto& [token, bias] : spec.options.logit_bias) {
    if (token >= vocab_size) return outside(token, "logit_bias");
  }
  return absl::OkStatus();
}

bool Engine::lost() const {
  if (fork_guard_.forked()) return false;
  absl::MutexLock lock(&mutex_);
  return absl::IsUnavailable(accepting_);
}

int64_t Engine::num_queued() const { return num_waiting_ + static_cast<int64_t>(incoming_.size()); }

EngineStats Engine::Stats() const {
  if (fork_guard_.forked()) return {};
  absl::MutexLock lock(&mutex_);
  EngineStats stats = counts_.Stats();
  stats.queued = num_queued();
  return stats;
}

EngineStats Engine::StatsSinceLaidOut() const {
  if (fork_guard_.forked()) return {};
  absl::MutexLock lock(&mutex_);
  EngineStats stats = counts_.StatsSinceLaidOut();
  stats.queued = num_queued();
  return stats;
}

RequestCounts Engine::CountsOf(absl::string_view salt) const {
  if (fork_guard_.forked()) return {};
  absl::MutexLock lock(&mutex_);
  return counts_.OfSalt(salt);
}

std::vector<RequestRecord> Engine::RecentRequests(absl::string_view salt) const {
  if (fork_guard_.forked()) return {};
  absl::MutexLock lock(&mutex_);
  return counts_.RecentRequests(salt);
}

std::shared_ptr<CacheInspection> Engine::InspectCache(std::string salt) {
  auto inspection = std::make_shared<CacheInspection>(std::move(salt));
  if (!fork_guard_.forked()) {
    absl::MutexLock lock(&mutex_);
    if (accepting_.ok()) {
      inspections_.push_back(inspection);
      news_.SignalAll();
      return inspection;
    }
  }
  inspection->Finish(std::vector<PrefixTree::Run>());
  return inspection;
}

void Engine::Forget(std::string salt) {
  if (fork_guard_.forked()) return;
  {
    absl::MutexLock lock(&mutex_);
    if (!accepting_.ok()) return;
    forgotten_.push_back(std::move(salt));
  }
  news_.SignalAll();
}

}  // namespace lm
