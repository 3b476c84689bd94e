#include "engine/runtime/generator_registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/exit_guard.h"
#include "engine/base/out_of_memory.h"
#include "engine/base/status_macros.h"
#include "engine/base/this_process.h"
#include "engine/model/adapter_file.h"
#include "engine/runtime/fork_guard.h"
#include "engine/runtime/local_generator.h"

namespace lm {

bool IsLost(const Generator& generator) {
  return generator.engine() != nullptr && generator.engine()->lost();
}

absl::StatusOr<std::shared_ptr<Generator>> GeneratorRegistry::Get(const std::string& path,
                                                                  const ModelOptions& options,
                                                                  std::atomic<bool>& cancel) {
  ASSIGN_OR_RETURN(const ModelIdentity identity, IdentifyFiles(path, options));
  const Key key{identity, options};
  for (;;) {
    std::shared_ptr<Slot> slot;
    std::shared_ptr<Generator> running;  // not let go under the lock
    {
      absl::MutexLock lock(&mutex_);
      const auto known = slots_.find(key);
      if (known != slots_.end()) running = known->second->generator.lock();
      const bool first = known == slots_.end() ||
                         (!known->second->loading && (running == nullptr || IsLost(*running)));
      slot = first ? std::make_shared<Slot>() : known->second;
      if (first) slots_.insert_or_assign(key, slot);
      if (!first) {
        mutex_.Await(absl::Condition(
            +[](Slot* s) { return !s->loading; }, slot.get()));
        // Where the thread that loaded was cancelled, or the generator came and went while this
        // thread slept, this thread tries itself.
        if (cancel) return absl::CancelledError("the loading of the model was cancelled");
        if (absl::IsCancelled(slot->status)) continue;
        RETURN_IF_ERROR(slot->status);
        running = slot->generator.lock();
        if (running != nullptr && !IsLost(*running)) return running;
        continue;
      }
    }
    running.reset();
    absl::StatusOr<std::shared_ptr<Generator>> generator = OutOfMemory();
    try {
      generator = Load(path, key, cancel);
    } catch (...) {  // others may wait for the slot
      generator = CurrentExceptionAsStatus();
    }
    absl::MutexLock lock(&mutex_);
    slot->loading = false;
    slot->status = generator.status();
    if (generator.ok()) slot->generator = *generator;
    std::erase_if(slots_, [](const auto& entry) {
      return !entry.second->loading && entry.second->generator.expired();
    });
    return generator;
  }
}

absl::StatusOr<std::shared_ptr<Generator>> GeneratorRegistry::Load(const std::string& path,
                                                                   const Key& key,
                                                                   std::atomic<bool>& cancel) {
  ExitGuard guard([](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); }, &cancel);
  if (!guard.allowed()) return ExitGuard::Error();
  absl::StatusOr<std::unique_ptr<Model>> model = loader_(path, key.options, cancel);
  if (absl::IsCancelled(model.status()) && ExitGuard::exit_begun()) return ExitGuard::Error();
  RETURN_IF_ERROR(model.status());
  ASSIGN_OR_RETURN(const ModelIdentity now, IdentifyFiles(path, key.options));
  if (IsReplaced(key.files, now)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": was replaced or changed while it was being loaded"));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine,
                   Engine::Start(*std::move(model), EngineOptions{}));
  return std::make_shared<LocalGenerator>(std::move(engine));
}

std::vector<std::shared_ptr<Generator>> GeneratorRegistry::Running() {
  std::vector<std::shared_ptr<Generator>> running;
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, slot] : slots_) {
    if (std::shared_ptr<Generator> generator = slot->generator.lock())
      running.push_back(std::move(generator));
  }
  return running;
}

namespace {

// The process that the registry below belongs to; 0 before the first call. Looked at before any
// lock, which in a forked child may be held by a thread that does not exist.
std::atomic<uint64_t> registry_owner{0};

// Never destroyed: other threads go on while exit() does its work.
GeneratorRegistry& Registry() {
  static auto& registry = *new GeneratorRegistry(
      [](const std::string& path, const ModelOptions& options, const std::atomic<bool>& cancel) {
        return Model::Load(path, options, cancel);
      });
  return registry;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Generator>> GetGenerator(const std::string& path,
                                                        const ModelOptions& options) {
  std::atomic<bool> cancel{false};
  return GetGenerator(path, options, cancel);
}

absl::StatusOr<std::shared_ptr<Generator>> GetGenerator(const std::string& path,
                                                        const ModelOptions& options,
                                                        std::atomic<bool>& cancel) {
  uint64_t nobody = 0;
  registry_owner.compare_exchange_strong(nobody, ThisProcess());
  RETURN_IF_ERROR(CheckNotForked());
  return Registry().Get(path, options, cancel);
}

absl::Status CheckNotForked() {
  const uint64_t owner = registry_owner.load();
  return owner == 0 || owner == ThisProcess() ? absl::OkStatus() : ForkGuard::Error();
}

std::vector<std::shared_ptr<Generator>> RunningGenerators() {
  if (registry_owner.load() != ThisProcess()) return {};
  return Registry().Running();
}

void ForgetSalt(const std::string& salt) noexcept {
  try {
    for (const std::shared_ptr<Generator>& generator : RunningGenerators()) {
      if (generator->engine() != nullptr) generator->engine()->Forget(salt);
    }
  } catch (...) {  // no memory: it goes later
  }
}

}  // namespace lm
