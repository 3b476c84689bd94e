#include "engine/runtime/stored_prefixes.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/monotonic_time.h"
#include "engine/runtime/adapter_text.h"
#include "engine/tensor/buffer.h"

namespace lm {
namespace {

// Whether all of the model's blocks and states lie in this process's memory, each in one piece.
bool CacheIsInMemory(LanguageModel& model) {
  auto is_here = [](int64_t bytes, absl::Span<char> memory) {
    return static_cast<int64_t>(memory.size()) == bytes;
  };
  const CacheShape& cache = model.cache();
  if (cache.recurrent() && !is_here(cache.state_bytes, model.StateMemory(0))) return false;
  for (size_t c = 0; c < cache.classes.size(); ++c) {
    if (!is_here(cache.classes[c].block_bytes, model.BlockMemory(static_cast<int32_t>(c), 0))) {
      return false;
    }
  }
  return true;
}

}  // namespace

StoredPrefixes::StoredPrefixes(Model* model, const BatchCancellation* cancellation,
                               std::function<void()> wake)
    : model_(model),
      cancellation_(cancellation),
      no_store_(WhyNoStore()),
      store_(MakeStore()),
      sightings_(kKvBlockTokens),
      loader_(MakeLoader(std::move(wake))) {}

std::string StoredPrefixes::WhyNoStore() const {
  LanguageModel& model = model_->language_model();
  if (model_->info().prefix_store.empty()) return "";
  if (model_->info().prefix_store_bytes == 0) return "off: prefix_store_bytes is 0";
  if (model.cache().whole_sequences) return "off: the model keeps nothing of a text";
  if (!model_->info().exact) return "off: this device's numbers are its own";
  if (!CacheIsInMemory(model)) return "off: the model's cache is on several devices";
  return "";
}

std::unique_ptr<PrefixStore> StoredPrefixes::MakeStore() const {
  const ModelInfo& info = model_->info();
  const CacheShape& cache = model_->language_model().cache();
  if (info.prefix_store.empty() || !no_store_.empty()) return nullptr;
  PrefixStoreOptions options = {
      .folder = info.prefix_store,
      .model =
          absl::StrCat(LM_VERSION ".3 ", *model_->digest().known(), " ", info.device, " ",
                       KvTypeName(info.kv_type), " ", info.context_length, " ", cache.state_bytes),
      .state_bytes = cache.state_bytes,
      .block_tokens = kKvBlockTokens};
  for (const CacheClass& c : cache.classes) {
    options.classes.push_back({c.window, c.block_bytes});
    absl::StrAppend(&options.model, " ", c.window, ":", c.block_bytes);
  }
  if (info.prefix_store_bytes > 0) options.max_bytes = info.prefix_store_bytes;
  return std::make_unique<PrefixStore>(std::move(options));
}

std::unique_ptr<PrefixLoader> StoredPrefixes::MakeLoader(std::function<void()> wake) const {
  if (store_ == nullptr) return nullptr;
  constexpr int kMostThreads = 4;
  const int threads =
      std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMostThreads);
  return std::make_unique<PrefixLoader>(threads, std::move(wake));
}

void StoredPrefixes::Look() const {
  if (!fork_guard_.forked() && store_ != nullptr) store_->Look();
}

std::vector<PrefixStore::Listed> StoredPrefixes::List(absl::string_view salt) const {
  if (fork_guard_.forked() || store_ == nullptr) return {};
  std::vector<PrefixStore::Listed> listed = store_->List(salt);
  for (PrefixStore::Listed& prefix : listed) {
    prefix.adapters = AdaptersText(model_->info(), AdaptersOfKey(model_->info(), prefix.adapters));
  }
  return listed;
}

std::string StoredPrefixes::state() const {
  if (fork_guard_.forked() || store_ == nullptr) return no_store_;
  return store_->state();
}

int64_t StoredPrefixes::TokensOf(absl::string_view salt, const AdapterSet& adapters,
                                 absl::Span<const int32_t> prompt) const {
  if (fork_guard_.forked() || store_ == nullptr) return 0;
  store_->Look();
  const PrefixKey key = PrefixStore::KeyOf(salt, AdaptersKey(model_->info(), adapters));
  const std::shared_ptr<const StoredPrefix> stored = store_->Find(key, prompt);
  return stored == nullptr ? 0 : stored->tokens;
}

bool StoredPrefixes::Flush(absl::Duration timeout) const {
  return fork_guard_.forked() || store_ == nullptr || store_->Flush(timeout);
}

int64_t StoredPrefixes::BytesOf(int64_t tokens) const {
  const CacheShape& cache = model_->language_model().cache();
  int64_t bytes = cache.state_bytes;
  for (const CacheClass& c : cache.classes) {
    const int64_t first = c.window == 0 ? 0 : std::max<int64_t>(tokens - c.window + 1, 0);
    bytes += (BlocksFor(tokens) - first / kKvBlockTokens) * c.block_bytes;
  }
  return bytes;
}

void StoredPrefixes::Prepare() {
  if (loader_ == nullptr) return;
  loader_->Prepare([this] {
    store_->Look();
    CommitMemory();
  });
}

// Commits the blocks that the longest stored prefix will be read into if it is among the first that
// is asked for: memory that is touched for the first time would take as long as the reading. Of a
// very long prefix only the beginning: it may never be asked for.
void StoredPrefixes::CommitMemory() {
  const int64_t tokens = store_->MostTokens();
  if (tokens == 0) return;
  LanguageModel& model = model_->language_model();
  const std::vector<CacheClass>& classes = model.cache().classes;
  int64_t bytes_left = 256 << 20;
  std::vector<int64_t> blocks(classes.size(), 0);
  for (const PrefixStore::Piece& piece : store_->Layout(0, tokens)) {
    if (piece.cache_class != PrefixStore::kState) ++blocks[piece.cache_class];
  }
  for (size_t c = 0; c < classes.size(); ++c) {
    // An eighth more, for what is computed before the prefix is read.
    constexpr int64_t kShareOfOthers = 8;
    const int64_t count = blocks[c] == 0 ? 0 : blocks[c] + blocks[c] / kShareOfOthers + 1;
    for (int32_t i = 0; i < std::min<int64_t>(count, classes[c].num_blocks); ++i) {
      bytes_left -= classes[c].block_bytes;
      if (bytes_left < 0 || cancellation_->stopped()) return;
      CommitHost(model.BlockMemory(static_cast<int32_t>(c), i));
    }
  }
}

void StoredPrefixes::Describe(Sequence* sequence) {
  if (store_ == nullptr || sequence->wants_every_token()) return;
  const RequestSpec& spec = sequence->request().spec();
  PrefixKey key = PrefixStore::KeyOf(spec.salt, AdaptersKey(model_->info(), spec.adapters));
  int64_t sighted = 0;
  if (!key.owner.empty()) {
    const absl::Span<const int32_t> tokens = sequence->tokens();
    sighted = sightings_.See(key.owner + key.adapters, tokens.subspan(0, tokens.size() - 1));
  }
  sequence->set_store_key(std::move(key), sighted);
}

void StoredPrefixes::BeginLoads(const StepPlan& plan) {
  LanguageModel& model = model_->language_model();
  for (const StepPlan::Load& load : plan.loads) {
    const BlockTable& table = load.sequence->block_table();
    std::vector<PrefixLoader::Read> reads;
    for (const StoredPrefix::Part& part : load.stored->parts) {
      if (part.cache_class == 0 && part.index < load.begin) continue;
      const absl::Span<char> memory =
          part.cache_class == PrefixStore::kState
              ? model.StateMemory(table.state)
              : model.BlockMemory(part.cache_class, table.blocks[part.cache_class][part.index]);
      reads.push_back({part.file, part.piece, memory});
    }
    loader_->Begin(reinterpret_cast<intptr_t>(load.sequence), std::move(reads),
                   load.stored->Files());
  }
}

bool StoredPrefixes::EndLoads(Scheduler* scheduler) {
  if (loader_ == nullptr) return false;
  const std::vector<PrefixLoader::Done> all_done = loader_->TakeDone();
  for (const PrefixLoader::Done& done : all_done) {
    if (!done.status.ok()) store_->Refuse(done.file, done.status);
    scheduler->OnLoaded(reinterpret_cast<const Sequence*>(done.number), done.status.ok(),
                        MonotonicTime::Now());
  }
  return !all_done.empty();
}

void StoredPrefixes::DrainLoads() noexcept {
  if (loader_ != nullptr) loader_->Drain();
}

void StoredPrefixes::WriteFound(const StepPlan& plan) {
  for (const auto& [sequence, tokens, state] : plan.found) Write(*sequence, tokens, state.slot());
}

void StoredPrefixes::Write(const Sequence& sequence, int64_t tokens, int32_t state) {
  const absl::Span<const int32_t> prefix = sequence.tokens().subspan(0, tokens);
  const std::vector<int32_t>& asked = sequence.request().spec().store;
  const bool is_asked = std::find(asked.begin(), asked.end(), tokens) != asked.end();
  const std::optional<int64_t> begin = store_->Wants(sequence.store_key(), prefix, is_asked);
  if (!begin) return;
  LanguageModel& model = model_->language_model();
  const std::vector<PrefixStore::Piece> pieces = store_->Layout(*begin, tokens);
  size_t bytes = 0;
  for (const PrefixStore::Piece& piece : pieces) bytes += piece.bytes;
  std::vector<char> data;
  data.reserve(bytes);
  for (const PrefixStore::Piece& piece : pieces) {
    absl::Span<char> memory;
    if (piece.cache_class == PrefixStore::kState) {
      if (state >= 0) memory = model.StateMemory(state);
    } else {
      const int32_t block = sequence.block_table().blocks[piece.cache_class][piece.index];
      if (block >= 0) memory = model.BlockMemory(piece.cache_class, block);
    }
    if (memory.empty()) return;  // no longer in the cache
    data.insert(data.end(), memory.begin(), memory.end());
  }
  store_->Write(sequence.store_key(), prefix, *begin, std::move(data));
}

}  // namespace lm
