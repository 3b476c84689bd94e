// DraftOdds: how often guesses of each kind have been right.
#ifndef LM_ENGINE_RUNTIME_DRAFT_ODDS_H_
#define LM_ENGINE_RUNTIME_DRAFT_ODDS_H_

#include <array>
#include <cstdint>

#include "engine/runtime/drafter.h"

namespace lm {

// Not thread-safe. It decides what is guessed, never what comes out.
class DraftOdds {
 public:
  DraftOdds();

  // The share of guessed tokens of this kind that are right, where the tokens before them are.
  // Drawn tokens (temperature > 0) have odds of their own. Of a kind that was never seen: a token
  // further on in a draft is taken to be as good as the one before it, and one of another margin to
  // be as good as the draft model's tokens are on average.
  double Of(int32_t kind, bool drawn) const;
  void Record(int32_t kind, bool drawn, bool right);

 private:
  struct Share {
    double share = 0;
    double seen = 0;
  };
  std::array<std::array<Share, kDraftKinds>, 2> odds_;
};

// How a row's guesses fare beside what their odds are: texts differ in how much they repeat.
class RowOdds {
 public:
  // Multiplies the odds of the row's next guess.
  double factor() const;
  void Record(double odds, bool right);

 private:
  double expected_ = 0;
  double right_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_DRAFT_ODDS_H_
