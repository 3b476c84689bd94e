// Runs a language model over token lists in tests, each sequence in KV blocks of its own.
#ifndef LM_TESTS_ENGINE_MODEL_RUN_MODEL_H_
#define LM_TESTS_ENGINE_MODEL_RUN_MODEL_H_

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/model/language_model.h"

namespace lm {

// A sequence being fed piece by piece: its tokens, how many have been computed, its blocks (of
// every class of the cache) and its slot of recurrent state.
struct TestSequence {
  std::vector<int32_t> tokens;
  std::vector<int32_t> blocks;
  int32_t computed = 0;
  int32_t state = 0;
};

// Appends the next `count` tokens of a sequence to a step.
inline void Append(const TestSequence& sequence, int32_t count, const LanguageModel& model,
                   ModelStep* step) {
  const CacheShape& cache = model.cache();
  step->tables.blocks.resize(cache.classes.size());
  step->tables.Append(sequence.tokens.data() + sequence.computed, count, sequence.computed,
                      cache.recurrent() ? sequence.state : -1);
  const int32_t used = BlocksFor(sequence.computed + count);
  for (std::vector<int32_t>& blocks : step->tables.blocks) {
    blocks.insert(blocks.end(), sequence.blocks.begin(), sequence.blocks.begin() + used);
  }
}

inline StepResults RunStep(LanguageModel& model, ModelStep step) {
  const std::atomic<bool> cancel{false};
  StepResults results;
  const absl::Status status = model.Run(std::move(step), cancel, &results);
  EXPECT_TRUE(status.ok()) << status;
  return results;
}

// Feeds `count[i]` more tokens of each sequence in one batch and returns the logits of every row.
inline std::vector<float> Feed(LanguageModel& model, std::vector<TestSequence*> sequences,
                               std::vector<int32_t> counts) {
  ModelStep step;
  for (size_t i = 0; i < sequences.size(); ++i) {
    Append(*sequences[i], counts[i], model, &step);
    sequences[i]->computed += counts[i];
  }
  step.logit_rows.resize(step.tables.tokens.size());
  std::iota(step.logit_rows.begin(), step.logit_rows.end(), 0);
  return RunStep(model, std::move(step)).logits;
}

// A sequence of `tokens` in blocks first_block, first_block + 1, ...
inline TestSequence MakeSequence(std::vector<int32_t> tokens, int32_t first_block) {
  TestSequence sequence;
  sequence.tokens = std::move(tokens);
  sequence.blocks.resize((sequence.tokens.size() + kKvBlockTokens - 1) / kKvBlockTokens);
  std::iota(sequence.blocks.begin(), sequence.blocks.end(), first_block);
  return sequence;
}

}  // namespace lm

#endif  // LM_TESTS_ENGINE_MODEL_RUN_MODEL_H_
