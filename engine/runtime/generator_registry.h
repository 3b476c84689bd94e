// The process's generators, one a loaded model file (and way of loading it), shared by all
// connections.
#ifndef LM_ENGINE_RUNTIME_GENERATOR_REGISTRY_H_
#define LM_ENGINE_RUNTIME_GENERATOR_REGISTRY_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/hash_map.h"
#include "engine/gguf/split_files.h"
#include "engine/model/model.h"
#include "engine/runtime/generator.h"

namespace lm {

// The generator for the file at `path` under these options: a running one where there is one (files
// are told apart by identity, not by name), else loads the model and starts an engine. Concurrent
// first calls for one file load it once. The engine stops when the last shared_ptr goes, and at
// exit(). One whose device is lost (IsLost) has its model loaded anew. FailedPrecondition "open the
// database after fork" in a forked child of a process that has had an engine. Cancelled, soon, once
// `cancel` is set, by the caller or by exit(), while this loads; another thread that waits for the
// same file then loads it.
absl::StatusOr<std::shared_ptr<Generator>> GetGenerator(const std::string& path,
                                                        const ModelOptions& options,
                                                        std::atomic<bool>& cancel);
absl::StatusOr<std::shared_ptr<Generator>> GetGenerator(const std::string& path,
                                                        const ModelOptions& options);

// Whether it is over an engine whose device is lost, and answers nothing any more.
bool IsLost(const Generator& generator);

// FailedPrecondition in a process that was forked from one that used models: what it shares with
// its parent, other threads may have locked when it was forked.
absl::Status CheckNotForked();

// Those running now; none in a forked child.
std::vector<std::shared_ptr<Generator>> RunningGenerators();

// Nobody will use the salt again: what the caches of those that run hold for it goes first.
void ForgetSalt(const std::string& salt) noexcept;

// What the functions above are made of; tests have one of their own. Thread-safe.
class GeneratorRegistry {
 public:
  using Loader = std::function<absl::StatusOr<std::unique_ptr<Model>>(
      const std::string& path, const ModelOptions& options, const std::atomic<bool>& cancel)>;
  explicit GeneratorRegistry(Loader loader) : loader_(std::move(loader)) {}

  absl::StatusOr<std::shared_ptr<Generator>> Get(const std::string& path,
                                                 const ModelOptions& options,
                                                 std::atomic<bool>& cancel);
  std::vector<std::shared_ptr<Generator>> Running();

 private:
  struct Key {
    ModelIdentity files;
    ModelOptions options;

    bool operator==(const Key&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.files, key.options);
    }
  };
  // Shared by the threads that wait for one loading.
  struct Slot {
    bool loading = true;
    absl::Status status;  // of the loading
    std::weak_ptr<Generator> generator;
  };
  absl::StatusOr<std::shared_ptr<Generator>> Load(const std::string& path, const Key& key,
                                                  std::atomic<bool>& cancel);

  const Loader loader_;
  absl::Mutex mutex_;
  HashMap<Key, std::shared_ptr<Slot>> slots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_GENERATOR_REGISTRY_H_
