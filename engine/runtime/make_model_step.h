// What the model is asked for in a step: a ModelStep, from the scheduler's plan.
//
//   model.Run(MakeModelStep(plan, model, speculator), cancel, &results);  // a step by itself
//
//   model.Begin(MakeQueuedStep(num_picked, model, &plan));  // a step behind one that is under way
//   ... once the tokens of the step before are known ...
//   model.Pick(SamplesOf(plan), WantedLogits(plan, model.vocab_size()));
#ifndef LM_ENGINE_RUNTIME_MAKE_MODEL_STEP_H_
#define LM_ENGINE_RUNTIME_MAKE_MODEL_STEP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/language_model.h"
#include "engine/runtime/speculator.h"
#include "engine/runtime/step_plan.h"

namespace lm {

// The plan's cache operations, tokens and samples. An entry whose grammar is in error is not
// sampled.
ModelStep MakeModelStep(const StepPlan& plan, const LanguageModel& model,
                        const Speculator& speculator);

// The plan's cache operations and tokens, to be queued behind a step in which `num_picked` tokens
// are picked. What is sampled behind them is not said yet (SamplesOf); each entry's row is set.
ModelStep MakeQueuedStep(size_t num_picked, const LanguageModel& model, StepPlan* plan);

// How the next tokens of the plan's entries, in a queued step, are to be picked. An entry whose
// grammar is in error is left out.
std::vector<SamplingRow> SamplesOf(const StepPlan& plan);

// The tokens that any sequence of the step allows next, as ModelStep::wanted_logits has them; empty
// where one needs all logits.
std::vector<uint64_t> WantedLogits(const StepPlan& plan, int32_t vocab_size);

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_MAKE_MODEL_STEP_H_
