// The engine's prefix store: what is written to it, what is read from it, and what is said of it.
#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/casts.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/runtime/engine.h"
#include "engine/tensor/buffer.h"

namespace lm {

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

std::unique_ptr<PrefixLoader> Engine::MakeLoader() {
  if (store_ == nullptr) return nullptr;
  constexpr int kMostThreads = 4;
  const int threads =
      std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMostThreads);
  auto loader = std::make_unique<PrefixLoader>(threads, [this] {
    absl::MutexLock lock(&mutex_);
    loaded_ = true;
  });
  loader->Prepare([this] { MakeRoomForStored(); });
  return loader;
}

// Looks what is stored, and commits the blocks that the longest prefix will be read into if it is
// among the first: memory that is touched for the first time would take as long as the reading. Of
// a very long one the beginning: it may never be asked for.
void Engine::MakeRoomForStored() {
  store_->Look();
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
    constexpr int64_t kOthers = 8;  // a part of as many, of what is computed before
    const int64_t count = blocks[c] == 0 ? 0 : blocks[c] + blocks[c] / kOthers + 1;
    for (int32_t i = 0; i < std::min<int64_t>(count, classes[c].num_blocks); ++i) {
      bytes_left -= classes[c].block_bytes;
      if (bytes_left < 0 || cancellation_->stopped()) return;
      CommitHost(model.BlockMemory(static_cast<int32_t>(c), i));
    }
  }
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

void Engine::NoticeStored() const {
  if (!fork_guard_.forked() && store_ != nullptr) store_->Look();
}

int64_t Engine::StoredTokens(absl::string_view salt, const AdapterSet& adapters,
                             absl::Span<const int32_t> prompt) const {
  if (fork_guard_.forked() || store_ == nullptr) return 0;
  NoticeStored();
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

// The engine's thread ---------------------------------------------------------------------------

// Does the plan's block operations, behind which its loads may write, and begins those.
absl::Status Engine::CarryOut(StepPlan* plan) {
  ModelStep step;
  step.cache_ops = std::exchange(plan->cache_ops, {});
  step.tables.blocks.resize(model_->language_model().cache().classes.size());
  const absl::Status status = step.cache_ops.empty() ? absl::OkStatus() : RunStep(std::move(step));
  BeginLoads(*plan);
  return status;
}

void Engine::BeginLoads(const StepPlan& plan) {
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

void Engine::EndLoads() {
  if (loader_ == nullptr) return;
  {
    absl::MutexLock lock(&mutex_);
    loaded_ = false;
  }
  for (const PrefixLoader::Done& done : loader_->TakeDone()) {
    if (!done.status.ok()) store_->Refuse(done.file, done.status);
    scheduler_->OnLoaded(reinterpret_cast<const Sequence*>(done.number), done.status.ok(),
                         absl::Now());
    look_for_abandoned_ = true;
  }
}

// Has what prompts have found in the cache, which so was of use twice, written to the store.
void Engine::StoreFound(const StepPlan& plan) {
  for (const auto& [sequence, found, state] : plan.found) {
    StorePrefix(*sequence, found, state.slot());
  }
}

// Has a sequence's first tokens written, of which its table has all that a file needs but the
// state.
void Engine::StorePrefix(const Sequence& sequence, int64_t tokens, int32_t state) {
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
    if (memory.empty()) return;
    data.insert(data.end(), memory.begin(), memory.end());
  }
  store_->Write(sequence.store_key(), prefix, *begin, std::move(data));
}

}  // namespace lm
