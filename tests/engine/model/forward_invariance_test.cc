// A row's logits are the same bits whatever else is in the batch, however its prompt was cut into
// chunks, whichever blocks hold it, with any number of threads, and whether its weights are laid
// out or still in the file.
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "engine/model/model.h"
#include "tests/engine/model/run_model.h"
#include "tests/testdata.h"

namespace lm {
namespace {

std::vector<int32_t> RandomTokens(std::mt19937& random, int count) {
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = 3 + static_cast<int32_t>(random() % 290);
  return tokens;
}

class ForwardInvarianceTest : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Model> Load(int threads, bool settled = true) {
    auto model = Model::Load(absl::StrCat(LM_TESTDATA, "/models/", GetParam(), ".gguf"),
                             {.threads = threads,
                              .kv_bytes = 1 << 26,
                              .least_deferred = settled ? int64_t{1} << 40 : 0});
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }

  // The logits of every token of `tokens`, fed in one piece to a model of its own.
  std::vector<float> Alone(const std::vector<int32_t>& tokens, int threads) {
    auto model = Load(threads);
    TestSequence sequence = MakeSequence(tokens, 0);
    return Feed(model->language_model(), {&sequence}, {static_cast<int32_t>(tokens.size())});
  }
};

TEST_P(ForwardInvarianceTest, ChunksBatchesBlocksAndThreadsChangeNoBit) {
  std::mt19937 random(11);
  std::vector<std::vector<int32_t>> prompts;
  for (int count : {300, 40, 1, 77, 261}) prompts.push_back(RandomTokens(random, count));
  std::vector<std::vector<float>> expected;
  for (const auto& prompt : prompts) expected.push_back(Alone(prompt, 1));

  for (int threads : {1, 2, 3}) {
    auto model = Load(threads, /*settled=*/threads == 1);
    const size_t vocab = model->language_model().vocab_size();
    std::vector<TestSequence> sequences;
    int32_t next_block = 5;
    for (const auto& prompt : prompts) {
      sequences.push_back(MakeSequence(prompt, next_block));
      sequences.back().state = static_cast<int32_t>(sequences.size()) * 3 % 5;
      std::shuffle(sequences.back().blocks.begin(), sequences.back().blocks.end(), random);
      next_block += static_cast<int32_t>(sequences.back().blocks.size());
    }
    std::vector<size_t> compared(prompts.size());
    for (;;) {
      // A step: some of the unfinished sequences, a random chunk of each.
      std::vector<TestSequence*> batch;
      std::vector<int32_t> counts;
      std::vector<size_t> which;
      bool unfinished = false;
      for (size_t i = 0; i < sequences.size(); ++i) {
        int32_t left = static_cast<int32_t>(prompts[i].size()) - sequences[i].computed;
        unfinished |= left > 0;
        if (left == 0 || random() % 4 == 0) continue;
        batch.push_back(&sequences[i]);
        counts.push_back(1 + static_cast<int32_t>(random() % std::min(left, 90)));
        which.push_back(i);
      }
      if (!unfinished) break;
      if (batch.empty()) continue;
      if (threads == 3 && random() % 4 == 0) {
        ASSERT_TRUE(model->language_model().LayOutMore(absl::ZeroDuration()).ok());
      }
      std::vector<float> logits = Feed(model->language_model(), batch, counts);
      size_t offset = 0;
      for (size_t b = 0; b < batch.size(); ++b) {
        const size_t size = counts[b] * vocab;
        ASSERT_TRUE(std::equal(logits.begin() + offset, logits.begin() + offset + size,
                               expected[which[b]].begin() + compared[which[b]]))
            << "prompt " << which[b] << ", " << threads << " threads";
        offset += size;
        compared[which[b]] += size;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ForwardInvarianceTest,
    testing::Values("llama-q8_0", "qwen2-q4_0", "llama-q4_k_m", "llama-q6_k",
                    "llama-rope-factors-f16", "llama-spm-untied-f32", "qwen2-bf16", "gemma3-q8_0",
                    "gemma3-f32", "qwen35-q8_0", "qwen35-f32", "qwen3next-f32", "gpt-oss-f32",
                    "gpt-oss-mxfp4", "lfm2moe-f32", "cohere2-f32", "mistral3-f32", "deepseek2-f32",
                    "granitehybrid-f32", "nemotron_h_moe-f32", "gemma4-e-f32", "gemma4-moe-f32",
                    "mamba2-f32", "falcon-h1-f32", "llama4-f32", "minicpm3-f32", "mamba-f32",
                    "jamba-f32", "gemma3n-f32", "rwkv7-f32", "kimi-linear-f32", "bailingmoe3-f32",
                    "step35-f32", "laguna-f32", "mimo2-f32", "rwkv6-f32", "plamo2-f32",
                    "rwkv6qwen2-f32", "deepseek4-f32"),
    [](const auto& info) {
      std::string name = info.param;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace lm
