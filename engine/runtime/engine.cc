#include "engine/runtime/engine.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/base/casts.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/backend/backend.h"
#include "engine/base/exit_guard.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

int32_t MaxSequenceTokens(const LanguageModel& model) {
  const int64_t cache_tokens = int64_t{model.cache().classes[0].num_blocks} * kKvBlockTokens;
  return static_cast<int32_t>(std::min<int64_t>(model.context_length(), cache_tokens));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Engine>> Engine::Start(std::unique_ptr<Model> model,
                                                      const EngineOptions& options) {
  auto engine = std::unique_ptr<Engine>(new Engine(std::move(model), options));
  try {
    engine->thread_ = std::thread([engine = engine.get()] { engine->Run(); });
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
      constraints_(std::make_unique<ConstraintCache>(&model_->tokenizer())),
      store_(MakeStore()),
      speculator_(MakeSpeculator()),
      scheduler_(MakeScheduler()),
      work_meter_(model_->info().cost, model_->language_model().cache()),
      sightings_(kKvBlockTokens),
      loader_(MakeLoader()) {
  const CacheShape& cache = model_->language_model().cache();
  if (const Model* draft = model_->draft()) stats_.draft_model = draft->info().name;
  stats_.kv_blocks_total = cache.classes[0].num_blocks;
  stats_.kv_blocks_free = stats_.kv_blocks_total;
  for (const CacheClass& c : cache.classes) stats_.kv_block_bytes += c.block_bytes;
  stats_.kv_bytes_total = cache.bytes();
  stats_.kv_bytes_free = stats_.kv_bytes_total;
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
  request->set_listener(std::move(listener));
  if (store_ != nullptr && answers) store_->Look();
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(accepting_);
  const int64_t queued = num_waiting_ + static_cast<int64_t>(incoming_.size());
  if (queued >= options_.max_queued) {
    return absl::ResourceExhaustedError(absl::StrCat("the engine's queue is full: ", queued,
                                                     " requests wait, at most ",
                                                     options_.max_queued, " may"));
  }
  incoming_.push_back(request);
  return request;
}

std::unique_ptr<PrefixStore> Engine::MakeStore() {
  const ModelInfo& info = model_->info();
  const CacheShape& cache = model_->language_model().cache();
  if (info.prefix_store.empty()) return nullptr;
  LanguageModel& model = model_->language_model();
  auto here = [](int64_t bytes, absl::Span<char> memory) {
    return static_cast<int64_t>(memory.size()) == bytes;
  };
  bool in_memory = !cache.recurrent() || here(cache.state_bytes, model.StateMemory(0));
  for (size_t c = 0; c < cache.classes.size(); ++c) {
    in_memory = in_memory &&
                here(cache.classes[c].block_bytes, model.BlockMemory(static_cast<int32_t>(c), 0));
  }
  if (cache.whole_sequences) {
    no_store_ = "off: the model keeps nothing of a text";
  } else if (!info.exact) {
    no_store_ = "off: this device's numbers are its own";
  } else if (!in_memory) {
    no_store_ = "off: the model's cache is on several devices";
  }
  if (!no_store_.empty()) return nullptr;
  PrefixStoreOptions options = {
      .folder = info.prefix_store,
      .model = absl::StrCat(LM_VERSION ".2 ", info.digest, " ", info.device, " ",
                            KvTypeName(info.kv_type), " ", info.context_length),
      .state_bytes = cache.state_bytes,
      .block_tokens = kKvBlockTokens};
  for (const CacheClass& c : cache.classes) options.classes.push_back({c.window, c.block_bytes});
  if (info.prefix_store_bytes > 0) options.max_bytes = info.prefix_store_bytes;
  return std::make_unique<PrefixStore>(std::move(options));
}

std::unique_ptr<PrefixLoader> Engine::MakeLoader() {
  if (store_ == nullptr) return nullptr;
  constexpr int kMostThreads = 4;
  const int threads =
      std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMostThreads);
  return std::make_unique<PrefixLoader>(threads, [this] {
    absl::MutexLock lock(&mutex_);
    loaded_ = true;
  });
}

// What of adapters the keys and values depend on.
std::string Engine::StoredAdapters(const AdapterSet& adapters) const {
  std::string text;
  for (const AdapterUse& use : adapters) {
    const AdapterInfo& adapter = model_->info().adapters[use.adapter];
    absl::StrAppend(&text, text.empty() ? "" : " ", adapter.digest, "*",
                    absl::Hex(absl::bit_cast<uint32_t>(use.scale), absl::kZeroPad8));
  }
  return text;
}

std::vector<PrefixStore::Listed> Engine::StoredPrefixes(absl::string_view salt) const {
  if (fork_guard_.forked() || store_ == nullptr) return {};
  std::vector<PrefixStore::Listed> listed = store_->List(salt);
  for (PrefixStore::Listed& prefix : listed) {
    prefix.adapters = AdaptersText(AdaptersOf(prefix.adapters));
  }
  return listed;
}

// Those of the model that a text of StoredAdapters names.
AdapterSet Engine::AdaptersOf(absl::string_view stored) const {
  AdapterSet set;
  const std::vector<AdapterInfo>& known = model_->info().adapters;
  for (const absl::string_view one : absl::StrSplit(stored, ' ', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(one, '*');
    const auto named = std::find_if(known.begin(), known.end(), [&parts](const AdapterInfo& a) {
      return a.digest == parts.first;
    });
    uint32_t scale = 0;
    if (named == known.end() || !absl::SimpleHexAtoi(parts.second, &scale)) continue;
    set.push_back({static_cast<int32_t>(named - known.begin()), absl::bit_cast<float>(scale)});
  }
  return set;
}

int64_t Engine::StoredTokens(absl::string_view salt, const AdapterSet& adapters,
                             absl::Span<const int32_t> prompt) const {
  if (fork_guard_.forked() || store_ == nullptr) return 0;
  store_->Look();
  const auto stored = store_->Find(PrefixStore::KeyOf(salt, StoredAdapters(adapters)), prompt);
  return stored == nullptr ? 0 : stored->tokens;
}

int64_t Engine::PrefixBytes(int64_t tokens) const {
  const CacheShape& cache = model_->language_model().cache();
  int64_t bytes = cache.state_bytes;
  for (const CacheClass& c : cache.classes) {
    const int64_t first = c.window == 0 ? 0 : std::max<int64_t>(tokens - c.window + 1, 0);
    bytes += (BlocksFor(tokens) - first / kKvBlockTokens) * c.block_bytes;
  }
  return bytes;
}

bool Engine::FlushStore(absl::Duration timeout) const {
  return fork_guard_.forked() || store_ == nullptr || store_->Flush(timeout);
}

std::string Engine::StoreState() const {
  if (fork_guard_.forked() || store_ == nullptr) return no_store_;
  return store_->state();
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

EngineStats Engine::Stats() const {
  if (fork_guard_.forked()) return {};
  absl::MutexLock lock(&mutex_);
  EngineStats stats = stats_;
  stats.queued = num_waiting_ + static_cast<int64_t>(incoming_.size());
  stats.time_to_first_token = time_to_first_token_.Summary();
  stats.inter_token_latency = inter_token_latency_.Summary();
  return stats;
}

RequestCounts Engine::CountsOf(absl::string_view salt) const {
  if (fork_guard_.forked()) return {};
  absl::MutexLock lock(&mutex_);
  return counts_.Get(salt);
}

std::vector<RequestRecord> Engine::RecentRequests(absl::string_view salt) const {
  if (fork_guard_.forked()) return {};
  absl::MutexLock lock(&mutex_);
  return log_.Of(salt);
}

std::shared_ptr<CacheInspection> Engine::InspectCache(std::string salt) {
  auto inspection = std::make_shared<CacheInspection>(std::move(salt));
  if (!fork_guard_.forked()) {
    absl::MutexLock lock(&mutex_);
    if (accepting_.ok()) {
      inspections_.push_back(inspection);
      return inspection;
    }
  }
  inspection->Finish(std::vector<PrefixTree::Run>());
  return inspection;
}

}  // namespace lm
