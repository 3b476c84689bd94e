// StepCosts: how long steps take that only decode, by the number of their tokens, from those that
// there were. Where memory is the bound a second token costs next to nothing, where arithmetic is
// it costs as much as the first; kernels work on tiles, so between the two there are stairs.
//
// A step's time is base * shape[tokens]. The base follows what changes for all steps (the length of
// contexts, other work on the machine) within a dozen of them, the shape more slowly.
#ifndef LM_ENGINE_RUNTIME_STEP_COSTS_H_
#define LM_ENGINE_RUNTIME_STEP_COSTS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace lm {

// Not thread-safe. It decides what is guessed, never what comes out.
class StepCosts {
 public:
  static constexpr int32_t kMostTokens = 256;  // of a step that is remembered

  void Record(int32_t tokens, absl::Duration took);

  // Seconds that a step of `tokens` tokens takes; 0 while nothing is known. A number of tokens that
  // was never tried lies between its neighbours, or costs `token_seconds` for each token more than
  // the largest that was. `token_seconds` is what a token more costs in steps that compute prompts;
  // 0: not known.
  double Seconds(int32_t tokens, double token_seconds) const;
  // The most tokens with which, as with any fewer, a step takes no longer than `seconds`; nullopt
  // where kMostTokens take no longer, or nothing is known.
  std::optional<int32_t> TokensWithin(double seconds, double token_seconds) const;

 private:
  struct Shape {
    double value = 0;  // 0: not known
    double seen = 0;
    int64_t last = 0;  // the last step with this number of tokens
  };
  // After kForgotten steps without it, the time of a number of tokens is not known any more; one
  // that was seen rarely, and may have been bad luck, sooner.
  static constexpr double kForgotten = 1000, kOneForgotten = 50;
  bool IsKnown(int32_t tokens) const {
    const Shape& shape = shape_[tokens];
    return shape.value > 0 && static_cast<double>(steps_ - shape.last) <
                                  std::min(kForgotten, kOneForgotten * shape.seen);
  }

  int64_t steps_ = 0;
  double base_ = 0;
  std::array<Shape, kMostTokens + 1> shape_ = {};
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_STEP_COSTS_H_
