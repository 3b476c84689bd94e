// The steps that are rehearsed when a model is loaded (Backend::set_rehearsal): as great as an
// engine's can be, or with fewer tokens.
#ifndef LM_ENGINE_MODEL_REHEARSED_STEP_H_
#define LM_ENGINE_MODEL_REHEARSED_STEP_H_

#include <cstdint>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/model/adapter_set.h"
#include "engine/model/language_model.h"
#include "engine/model/model_spec.h"

namespace lm {

// The greatest step of an engine (step_bounds.h).
StepBounds StepBoundsOf(const ModelSpec& spec);

// The steps refer to it.
class RehearsedStep {
 public:
  // REQUIRES: both outlive this.
  RehearsedStep(const ModelSpec& spec, const CacheShape& cache, int32_t adapters);

  // `tokens` of as many sequences as there can be, at the ends of the longest contexts, all with
  // every adapter. Of as many rows as ever a token is drawn, each with a mask and adjustments of
  // its own. All blocks and states have the number 0.
  ModelStep Of(int64_t tokens) const;
  // The same of the layer that guesses. REQUIRES: spec.has_mtp.
  ModelStep OfMtp(int64_t tokens) const;

 private:
  void Sample(int64_t rows, ModelStep* step) const;

  const ModelSpec& spec_;
  const CacheShape& cache_;
  AdapterSet adapters_;
  std::vector<uint64_t> masks_[2];  // all tokens
  std::vector<int32_t> context_;    // of kRepeatWindow tokens
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_REHEARSED_STEP_H_
