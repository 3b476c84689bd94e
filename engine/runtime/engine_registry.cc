#include "engine/runtime/engine_registry.h"

#include <atomic>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/fork_guard.h"

namespace lm {

absl::StatusOr<std::shared_ptr<Engine>> EngineRegistry::Get(const std::string& path,
                                                            const ModelOptions& options) {
  ASSIGN_OR_RETURN(const FileIdentity identity, IdentifyFile(path));
  const Key key{identity, options};
  for (;;) {
    std::shared_ptr<Slot> slot;
    {
      absl::MutexLock lock(&mutex_);
      if (stopped_) return absl::FailedPreconditionError("the process is about to exit");
      std::shared_ptr<Slot>& known = slots_[key];
      const bool first = known == nullptr || (!known->loading && known->engine.expired());
      if (first) known = std::make_shared<Slot>();
      slot = known;
      if (!first) {
        mutex_.Await(absl::Condition(
            +[](Slot* s) { return !s->loading; }, slot.get()));
        RETURN_IF_ERROR(slot->status);
        if (std::shared_ptr<Engine> engine = slot->engine.lock()) return engine;
        continue;  // it came and went while this thread slept
      }
    }
    absl::StatusOr<std::shared_ptr<Engine>> engine = Load(path, key);
    absl::MutexLock lock(&mutex_);
    slot->loading = false;
    slot->status = engine.status();
    if (engine.ok()) slot->engine = *engine;
    absl::erase_if(slots_, [](const auto& entry) {
      return !entry.second->loading && entry.second->engine.expired();
    });
    if (engine.ok() && stopped_) (*engine)->Stop();
    return engine;
  }
}

absl::StatusOr<std::shared_ptr<Engine>> EngineRegistry::Load(const std::string& path,
                                                             const Key& key) {
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, loader_(path, key.options));
  ASSIGN_OR_RETURN(const FileIdentity now, IdentifyFile(path));
  if (now != key.file) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": was replaced or changed while it was being loaded"));
  }
  return Engine::Start(std::move(model), EngineOptions{});
}

std::vector<std::shared_ptr<Engine>> EngineRegistry::Running() {
  std::vector<std::shared_ptr<Engine>> running;
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, slot] : slots_) {
    if (std::shared_ptr<Engine> engine = slot->engine.lock()) running.push_back(std::move(engine));
  }
  return running;
}

void EngineRegistry::StopAll() {
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  for (const std::shared_ptr<Engine>& engine : Running()) engine->Stop();
}

namespace {

// The process that the registry below belongs to; 0 before the first call. Looked at before any
// lock, which in a forked child may be held by a thread that does not exist.
std::atomic<pid_t> registry_owner{0};

// Never destroyed: engines may end after static destructors have run.
EngineRegistry& Registry() {
  static EngineRegistry* const registry = [] {
    auto* made = new EngineRegistry(&Model::Load);
    std::atexit([] {
      if (registry_owner.load() == getpid()) Registry().StopAll();
    });
    return made;
  }();
  return *registry;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Engine>> GetEngine(const std::string& path,
                                                  const ModelOptions& options) {
  pid_t owner = 0;
  if (!registry_owner.compare_exchange_strong(owner, getpid()) && owner != getpid()) {
    return ForkGuard::Error();
  }
  return Registry().Get(path, options);
}

std::vector<std::shared_ptr<Engine>> RunningEngines() {
  if (registry_owner.load() != getpid()) return {};
  return Registry().Running();
}

}  // namespace lm
