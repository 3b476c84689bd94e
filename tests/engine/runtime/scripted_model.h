// A language model without weights, for tests of what is above it. It keeps a "key and value" for
// each token in the KV blocks it is told to use, computed from all those before it, and reads them
// back through the block table for each logit. So whoever shares, copies, clears, drops or
// recomputes a block wrongly gets other answers, or a violation.
#ifndef LM_TESTS_ENGINE_RUNTIME_SCRIPTED_MODEL_H_
#define LM_TESTS_ENGINE_RUNTIME_SCRIPTED_MODEL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/model/model.h"
#include "engine/runtime/engine.h"

namespace lm {

// Token ids of the tests' vocabulary: a byte is its own token, then the markers.
inline constexpr int32_t kImStart = 256;
inline constexpr int32_t kImEnd = 257;  // ends an answer
inline constexpr int32_t kBos = 258;
inline constexpr int32_t kVocabSize = 300;
inline constexpr int32_t kHiddenSize = 3;

std::vector<int32_t> Bytes(const std::string& text);

// A cache of full attention with so many blocks.
inline CacheShape CacheOf(int32_t blocks) { return {.classes = {{.num_blocks = blocks}}}; }

// What a test tells the model, and what it saw. Shared, since the engine owns the model. Set the
// plain fields before the engine starts.
struct Script {
  int32_t context_length = 2048;
  int32_t num_blocks = 512;
  std::vector<int64_t> windows;     // of windowed classes of the cache, each with as many blocks
  bool whole_sequences = false;     // each token sees all of its text
  int32_t vocab_size = kVocabSize;  // more than the tokenizer's: the others are never said
  std::vector<int32_t> suppressed = {};  // tokens that are never said
  int32_t num_states = 0;                // slots of recurrent state; 0: the model has none
  std::vector<AdapterInfo> adapters = {};
  std::string prefix_store = {};     // a folder
  absl::Duration step_time;          // Forward takes at least so long, unless it is cancelled
  bool tenants = false;              // a context's first token names its owner: look for strangers
  int32_t nan_token = -1;            // a context that holds it has a NaN logit
  int32_t error_token = -1;          // a batch that holds it fails
  std::atomic<int> block_errors{0};  // so many block operations to come fail
  std::atomic<int> throw_in{0};      // counts down; Forward throws bad_alloc when it comes to 0
  bool queues_steps = false;         // a step may begin before the one before has been awaited
  int32_t late_each = 0;             // each so many-th token that is picked so is a late one
  std::atomic<int64_t> begun_behind{0};  // steps that began so
  std::function<absl::StatusOr<bool>()> lay_out = [] { return false; };

  // Contexts that begin with `prompt` go on with these tokens, then with kImEnd.
  std::vector<std::pair<std::vector<int32_t>, std::vector<int32_t>>> says;

  // While paused, Forward waits (and still looks at its cancel flag).
  void Pause();
  void Resume();
  void AwaitForward(int64_t entered);  // until Forward has been entered so often

  // Later passes than this one wait (and still look at their cancel flag).
  std::atomic<int64_t> most_forwards{std::numeric_limits<int64_t>::max()};

  // How often a pass that waits has looked at its cancel flag.
  std::atomic<int64_t> looks{0};

  std::atomic<int64_t> forwards{0};
  std::atomic<int64_t> cancelled_forwards{0};
  std::atomic<int64_t> copies{0};
  std::atomic<int64_t> zeroed{0};
  std::atomic<int64_t> state_copies{0};
  std::atomic<int64_t> blocks_shown{0};  // that were stored, or read from a store
  std::atomic<int32_t> most_rows{0};     // tokens in one batch
  std::atomic<int32_t> most_adapted{0};  // runs of rows with the same adapters in one batch
  std::atomic<int32_t> most_logits{0};   // logit rows in one batch
  std::atomic<int64_t> all_logits{0};    // logit rows of batches that want the logits of all tokens
  std::atomic<int64_t> some_logits{0};   // ... of some; the others get NaN
  std::string violation() const;         // the first one; empty: none
  void Violate(const std::string& what);

  mutable absl::Mutex mutex;
  bool paused ABSL_GUARDED_BY(mutex) = false;
  std::string first_violation ABSL_GUARDED_BY(mutex);
};

class ScriptedModel : public LanguageModel {
 public:
  explicit ScriptedModel(std::shared_ptr<Script> script);

  int32_t vocab_size() const override { return script_->vocab_size; }
  int32_t hidden_size() const override { return kHiddenSize; }
  int32_t context_length() const override { return script_->context_length; }
  const CacheShape& cache() const override { return cache_; }
  absl::Status Run(ModelStep step, const std::atomic<bool>& cancel, StepResults* results) override;
  bool queues_steps() const override { return script_->queues_steps; }
  absl::Status Begin(ModelStep step) override;
  absl::Status Pick(std::vector<SamplingRow> samples, std::vector<uint64_t> wanted_logits) override;
  absl::Status Await(const std::atomic<bool>& cancel, StepResults* results) override;
  absl::StatusOr<bool> LayOutMore(absl::Duration /*time*/) override { return script_->lay_out(); }
  absl::Span<char> BlockMemory(int32_t cache_class, int32_t block) override;
  absl::Span<char> StateMemory(int32_t slot) override;
  // The state itself; its scores are the state backwards.
  absl::StatusOr<std::vector<float>> ApplyHead(bool ranks, absl::Span<const float> pooled) override;

 private:
  struct Slot {
    int32_t token = -1;
    int32_t position = -1;
    int32_t owner = -1;
    uint64_t value = 0;
    uint64_t adapters = 0;  // that it was computed with
  };
  // The state behind a sequence's first `tokens` tokens.
  struct State {
    int32_t tokens = -1;
    int32_t owner = -1;
    uint64_t value = 0;
  };
  absl::Status ApplyCacheOp(const CacheOp& op);
  const int32_t* Blocks(const StepSequence& sequence, size_t cache_class = 0) const;
  Slot& At(const int32_t* blocks, int32_t position, size_t cache_class = 0);
  bool Linger(const std::atomic<bool>& cancel);
  void Spoil();
  void SpoilUnwanted(absl::Span<float> logits);
  void CheckStep();
  uint64_t ReadContext(const StepSequence& sequence);
  uint64_t AdaptersOf(int32_t row) const;
  void ReadWindows(const StepSequence& sequence, int32_t position);
  void CheckOwner(const StepSequence& sequence, int32_t owner);
  void ComputeToken(const StepSequence& sequence, int32_t i, int32_t owner, uint64_t* state);
  void Logits(const int32_t* blocks, int32_t position, uint64_t state, absl::Span<float> row);

  const std::shared_ptr<Script> script_;
  CacheShape cache_;
  std::vector<std::vector<Slot>> slots_;  // of each class
  std::vector<State> states_;
  ModelStep step_;
  // Of steps that are queued.
  std::vector<std::vector<float>> begun_;  // logits of the rows that may be picked of
  StepResults picked_;
  bool is_picked_ = false;
  std::vector<int32_t> stand_ins_;  // what a step behind takes for the tokens picked
  int64_t num_picked_ = 0;
};

// A model of the tests' vocabulary around a ScriptedModel. `chat_template` as in a GGUF.
std::unique_ptr<Model> MakeScriptedModel(std::shared_ptr<Script> script,
                                         const std::string& chat_template = "");

std::shared_ptr<Engine> StartScripted(std::shared_ptr<Script> script,
                                      const EngineOptions& options = {});

// Submits and waits; the request must be accepted.
Generation Generate(Engine& engine, RequestSpec spec);
Generation Await(const std::shared_ptr<Request>& request);

}  // namespace lm

#endif  // LM_TESTS_ENGINE_RUNTIME_SCRIPTED_MODEL_H_
