// Runs a language model over token lists in tests, each sequence in KV blocks of its own.
#ifndef LM_TESTS_ENGINE_MODEL_RUN_MODEL_H_
#define LM_TESTS_ENGINE_MODEL_RUN_MODEL_H_

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

#include "engine/model/language_model.h"

namespace lm {

// A sequence being fed piece by piece: its tokens, how many have been computed, and its blocks.
struct TestSequence {
  std::vector<int32_t> tokens;
  std::vector<int32_t> blocks;
  int32_t computed = 0;
};

// Feeds `count[i]` more tokens of each sequence in one batch and returns the logits of every row.
inline std::vector<float> Feed(LanguageModel& model, std::vector<TestSequence*> sequences,
                               std::vector<int32_t> counts) {
  std::vector<int32_t> tokens;
  std::vector<SequenceSpan> spans;
  for (size_t i = 0; i < sequences.size(); ++i) {
    TestSequence& sequence = *sequences[i];
    spans.push_back({.first_row = static_cast<int32_t>(tokens.size()),
                     .num_tokens = counts[i],
                     .first_position = sequence.computed,
                     .blocks = sequence.blocks});
    auto begin = sequence.tokens.begin() + sequence.computed;
    tokens.insert(tokens.end(), begin, begin + counts[i]);
    sequence.computed += counts[i];
  }
  std::vector<int32_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<float> logits(rows.size() * model.vocab_size());
  const std::atomic<bool> cancel{false};
  absl::Status status = model.Forward({.tokens = tokens, .sequences = spans, .logit_rows = rows},
                                      cancel, absl::MakeSpan(logits));
  EXPECT_TRUE(status.ok()) << status;
  return logits;
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
