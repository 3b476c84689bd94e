// TimedEngine: generations of random tokens through a real Engine, and how long they took.
//
//   ASSIGN_OR_RETURN(TimedEngine engine, TimedEngine::Load("model.gguf", {}, {}));
//   ASSIGN_OR_RETURN(Burst burst, engine.Run(engine.RandomPrompts(8, 128), /*max_tokens=*/17));
//
// What it measures is what a user gets: scheduling, sampling and detokenising are in it.
#ifndef LM_TESTS_BENCHMARKS_TIMED_ENGINE_H_
#define LM_TESTS_BENCHMARKS_TIMED_ENGINE_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/backend/sampling.h"
#include "engine/runtime/engine.h"

namespace lm {

using Prompt = std::vector<int32_t>;

// Requests that were submitted together. Times are seconds.
struct Burst {
  double prefill = 0;  // first submit -> the first token of the row that got its own last
  double decode = 0;   // from there to the last row's end
  double total = 0;
  double stagger = 0;          // between the earliest and the latest first token
  int64_t tokens_decoded = 0;  // answers without their first tokens
  int64_t tokens_computed = 0;
  int64_t steps = 0;
};

double Median(std::vector<double> values);

class TimedEngine {
 public:
  // Loads the model and generates one token, or embeds one.
  static absl::StatusOr<TimedEngine> Load(const std::string& path, const ModelOptions& model,
                                          const EngineOptions& options);

  double load_seconds() const { return load_seconds_; }
  double first_token_seconds() const { return first_token_seconds_; }  // the load included
  Engine& engine() { return *engine_; }

  // Until all weights are laid out: figures are of steps that need not wait for them.
  absl::Status WaitUntilLaidOut() const;

  // Whether tokens are guessed (speculation); at first never: figures are of the model's own steps.
  void set_speculate(Speculate speculate) { speculate_ = speculate; }
  // How the tokens of the answers to come are picked; at first greedily.
  void set_sampling(const SamplingOptions& sampling) { sampling_ = sampling; }
  const SamplingOptions& sampling() const { return sampling_; }

  int32_t RandomToken();
  Prompt RandomPrompt(int tokens);
  std::vector<Prompt> RandomPrompts(int count, int tokens);

  // Generates exactly `max_tokens` for each prompt. Where an answer would end early,
  // everything is done again with the end forbidden, from then on.
  // `together`: the prompts meet in the engine, behind one that keeps it busy meanwhile, so that
  // cached prompts begin to decode in the same step; times count from that step.
  absl::StatusOr<Burst> Run(const std::vector<Prompt>& prompts, int max_tokens,
                            bool together = false);

  // `tokens` of a prompt a second, `reps` prompts.
  absl::StatusOr<double> PrefillRate(int tokens, int reps);
  // Tokens a second of `rows` sequences that have `context` tokens each and share none.
  absl::StatusOr<double> DecodeRate(int rows, int context, int steps, int reps);
  // Tokens a second of `texts` texts of `tokens` tokens each, embedded together.
  absl::StatusOr<double> EmbedRate(int texts, int tokens, int reps);
  // `count` rows with 400 shared tokens, 40 of their own and 16 out; the median run.
  absl::StatusOr<Burst> Rows(int count, int reps);

 private:
  TimedEngine() : random_(1) {}
  absl::StatusOr<bool> TryRun(const std::vector<Prompt>& prompts, int max_tokens, bool together,
                              Burst* burst);
  absl::Status Embed(const std::vector<Prompt>& prompts);
  absl::StatusOr<std::shared_ptr<Request>> Submit(Prompt prompt, int max_tokens,
                                                  Priority priority = Priority::kBatch);

  std::mt19937 random_;
  std::shared_ptr<Engine> engine_;
  Speculate speculate_ = Speculate::kOff;
  SamplingOptions sampling_;
  double load_seconds_ = 0;
  double first_token_seconds_ = 0;
  // Biases the end of an answer away; empty until an answer ended early. A bias costs the sampler
  // a pass over the vocabulary, so it is not there from the beginning.
  std::vector<std::pair<int32_t, double>> no_end_;
};

}  // namespace lm

#endif  // LM_TESTS_BENCHMARKS_TIMED_ENGINE_H_
