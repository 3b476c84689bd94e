// Speculator decides which tokens are guessed in a step, and learns from what became of them.
//
//   speculator.Guess(rows, limits, &work);  // in the scheduler, once all else is planned
//   ...                                     // the step
//   speculator.Judge(i, before, ended);     // of each row
//   speculator.Record(tokens, took);        // of a step without prompts
//
// A guess is worth its place in a step where what it may save, times its odds, is more than what it
// adds: it takes the most probable ones, as many as bring the most tokens a second by what steps of
// that many tokens took (StepCosts). On a machine that reads memory most of a step that is many, on
// one that is busy with arithmetic none.
#ifndef LM_ENGINE_RUNTIME_SPECULATOR_H_
#define LM_ENGINE_RUNTIME_SPECULATOR_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/runtime/draft_odds.h"
#include "engine/runtime/drafter.h"
#include "engine/runtime/sequence.h"
#include "engine/runtime/step_costs.h"

namespace lm {

// Not thread-safe: the engine's thread owns it. It never changes what comes out.
class Speculator {
 public:
  // The most tokens that are guessed of a row.
  static constexpr int32_t kMostGuessed = 15;

  // `model`, which may be null, is asked about rows that `lookup` knows less about.
  explicit Speculator(std::unique_ptr<Drafter> lookup,
                      std::unique_ptr<ModelDrafter> model = nullptr)
      : lookup_(std::move(lookup)), model_(std::move(model)) {}

  // A sequence of a step that samples behind its last token.
  struct Row {
    Sequence* sequence = nullptr;
    int32_t most = 0;  // tokens that may be guessed
  };
  struct Limits {
    int32_t tokens = 0;         // guessed in the step
    int32_t step_tokens = 0;    // that the step has without guesses
    bool prompts = false;       // some of step_tokens are of prompts
    double prompt_seconds = 0;  // what a token of a prompt costs; 0: not known
    bool rewinds = false;  // where a guess is wrong in part, its right tokens are computed again
  };
  // Has sequences guess (Sequence::ExtendGuess) what is worth it. `*cache_ops` as
  // ModelDrafter::Propose.
  void Guess(absl::Span<const Row> rows, const Limits& limits, std::vector<CacheOp>* cache_ops,
             int64_t* work);
  // Whether Guess would have any sequence try to guess; has none do so. REQUIRES: !asks_model().
  bool WouldGuess(absl::Span<const Row> rows, const Limits& limits);
  bool asks_model() const { return model_ != nullptr; }

  // Whether the hidden states of the rows where a sequence samples are wanted, and what one is.
  bool Observes(const Sequence& sequence) const;
  void Observe(Sequence* sequence, int32_t position, absl::Span<const float> hidden) const;

  // What became of row i: its sequence had `before` tokens, and has what was appended since.
  void Judge(size_t i, int32_t before, bool ended);
  // A step of `tokens` tokens that only decoded took so long.
  void Record(int32_t tokens, absl::Duration took) { costs_.Record(tokens, took); }
  const StepCosts& costs() const { return costs_; }
  // An answer is there.
  void Learn(const Sequence& sequence);
  // What is cached for a salt that will not ask again goes first.
  void Forget(absl::string_view salt) {
    if (model_ != nullptr) model_->Forget(salt);
  }

 private:
  struct Proposal {
    Sequence* sequence = nullptr;
    Draft draft;
    std::vector<double> odds;  // of each token, with those before it
    int32_t chosen = 0;
    int32_t considered = 0;  // of the tokens, while they are chosen
    double redone = 0;       // expected number of tokens that will be computed again
  };
  void Propose(absl::Span<const Row> rows, const Limits& limits, std::vector<CacheOp>* cache_ops);
  void AskModel(absl::Span<const Row> rows, const Limits& limits, std::vector<CacheOp>* cache_ops);
  bool ModelIsWorthIt(int32_t rows, const Limits& limits);
  double OddsOf(const Draft& draft, size_t i, const Sequence& sequence) const;
  void SetOdds(Proposal* proposal) const;
  void Choose(const Limits& limits);
  void MakeGuess(const Proposal& proposal, int32_t most, int64_t* work) const;

  const std::unique_ptr<Drafter> lookup_;
  const std::unique_ptr<ModelDrafter> model_;
  int64_t without_model_ = 0;  // steps for which it was not worth its time, one after the other
  double model_rate_ = 0;      // tokens a second that the step is thought to bring with it; 0: ?
  double model_seconds_ = 0;   // that it took in this step
  DraftOdds odds_;
  StepCosts costs_;
  std::vector<Proposal> proposals_;  // of the step's rows
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_SPECULATOR_H_
