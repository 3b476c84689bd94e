// The memory of a GPU: what steps need is taken when a model is loaded, so that none fails for want
// of it later; a model that does not fit is an error of the load.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/model/model.h"
#include "engine/model/step_bounds.h"
#include "tests/engine/backend/cuda_on_host/device_memory.h"
#include "tests/engine/backend/cuda_on_host/runtime_counts.h"
#include "tests/engine/backend/cuda_on_host/simulation.h"
#include "tests/engine/model/golden_file.h"
#include "tests/engine/model/random_adapter.h"

namespace lm {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<Model>> LoadOn(const std::string& device, int64_t kv_bytes,
                                              const std::string& model = "llama-q8_0",
                                              std::vector<AdapterOption> lora = {}) {
  return Model::Load(ModelPath(model, ".gguf"), {.device = device,
                                                 .threads = 1,
                                                 .kv_bytes = kv_bytes,
                                                 .lora = std::move(lora),
                                                 .least_split_bytes = 0});
}

// Two adapters for it, of different ranks.
std::vector<AdapterOption> AdaptersFor(const std::string& model) {
  std::vector<AdapterOption> lora;
  for (const int rank : {4, 40}) {
    const std::string path =
        absl::StrCat(testing::TempDir(), "/full_device_", model, "_", rank, ".gguf");
    RandomAdapter(ModelPath(model, ".gguf"), {.rank = rank}).Write(path);
    lora.push_back({.name = absl::StrCat("rank_", rank), .path = path});
  }
  return lora;
}

// `sequences` of them, the next `count` tokens of each from `position` on, all in block 0.
ModelStep StepOf(const LanguageModel& model, int sequences, int count, int position) {
  ModelStep step;
  step.tables.blocks.resize(model.cache().classes.size());
  const std::vector<int32_t> tokens(count);
  for (int i = 0; i < sequences; ++i) {
    step.tables.Append(tokens.data(), count, position, model.cache().recurrent() ? 0 : -1);
    for (std::vector<int32_t>& blocks : step.tables.blocks) {
      blocks.resize(blocks.size() + BlocksFor(position + count));
    }
  }
  return step;
}

// A model, and where it is.
struct Place {
  const char* model;
  const char* device;
  bool adapted = false;
};

class FullDeviceTest : public testing::TestWithParam<Place> {
 protected:
  void TearDown() override {
    on_host::SetDeviceBytes(0);
    on_host::TheSimulation() = {};
  }
};

TEST_P(FullDeviceTest, NoStepTakesMemoryBehindTheLoad) {
  // Their numbers do not matter, but for those that choose experts.
  on_host::Simulation& simulation = on_host::TheSimulation();
  simulation.checks = false;
  simulation.most_blocks = 1;
  simulation.most_blocks_of = {{"Embed", 0},
                               {"Normalize", 0},
                               {"MultiplyFloat", 0},
                               {"ChooseExperts", 0},
                               {"GroupSlots", 0}};
  const auto& [name, device, adapted] = GetParam();
  const std::vector<AdapterOption> lora =
      adapted ? AdaptersFor(name) : std::vector<AdapterOption>();
  const absl::Cleanup gone = [&lora] {
    for (const AdapterOption& adapter : lora) std::filesystem::remove(adapter.path);
  };
  auto loaded = LoadOn(device, 1 << 24, name, lora);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  LanguageModel& model = (*loaded)->language_model();
  const int context = model.context_length();
  constexpr int kAll = kMostSequences + kInteractiveSeats;
  const int scored = MostScoredRows(model.vocab_size(), kMostSequences, kMostStepTokens);
  const std::vector<uint64_t> masks[2] = {
      std::vector<uint64_t>((model.vocab_size() + 63) / 64, ~uint64_t{0}),
      std::vector<uint64_t>((model.vocab_size() + 63) / 64, ~uint64_t{0})};
  on_host::TakeRuntimeCounts();
  auto run = [&](int sequences, int count, int position, bool guesses) {
    SCOPED_TRACE(testing::Message() << sequences << " x " << count << " at " << position);
    ModelStep step = StepOf(model, sequences, count, position);
    const int rows = sequences * count;
    for (int row = std::max(rows - kAll - scored, 0); row < rows; ++row) {
      if (row % 3 == 0 && row >= rows - scored) {
        step.logit_rows.push_back(row);
      } else {
        step.samples.push_back({.row = row, .allowed = masks[row % 2]});
      }
    }
    if (!lora.empty()) {  // some rows with both
      AppendAdapted(0, (rows + 1) / 2, {{.adapter = 0}, {.adapter = 1}}, &step.adapted);
      AppendAdapted((rows + 1) / 2, rows, {{.adapter = 1}}, &step.adapted);
    }
    if (guesses) step.mtp_hidden.resize(int64_t{rows} * model.hidden_size());
    if (!guesses && model.has_mtp()) step.mtp_next.resize(rows);
    const std::atomic<bool> never{false};
    StepResults results;
    const absl::Status status = model.Run(std::move(step), never, &results);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(on_host::TakeRuntimeCounts().allocations, 0);
  };
  const int most = std::min(kMostStepTokens, context);
  run(1, most, context - most, false);
  run(1, 1, context - 1, false);
  if (!model.cache().whole_sequences) run(kAll, 1, context - 1, false);
  if (std::string(name) == "llama-q8_0") {
    run(1, most, 0, false);
    run(7, 33, 1, false);
    run(kAll, 7, context - 7, false);
  }
  if (model.has_mtp()) run(kAll, 1, context - 1, true);
}

INSTANTIATE_TEST_SUITE_P(
    Models, FullDeviceTest,
    testing::Values(Place{"llama-q8_0", "cuda:0"}, Place{"llama-q8_0", "cuda:0+cuda:1"},
                    Place{"gemma2-f32", "cuda:0"}, Place{"gpt-oss-mxfp4", "cuda:0"},
                    Place{"gpt-oss-mxfp4", "cuda:0+cuda:1"}, Place{"qwen3next-f32", "cuda:0"},
                    Place{"glm4moe-mtp-f32", "cuda:0"}, Place{"deepseek4-f32", "cuda:0"},
                    Place{"bert-f32", "cuda:0"}, Place{"llama-q8_0", "cuda:0", true},
                    Place{"llama-q8_0", "cuda:0+cuda:1", true},
                    Place{"mixtral-f32", "cuda:0", true}),
    [](const auto& info) {
      return absl::StrCat(ModelAndDevice(info.param.model, info.param.device),
                          info.param.adapted ? "_adapted" : "");
    });

TEST_F(FullDeviceTest, AModelThatDoesNotFitIsAnErrorOfTheLoad) {
  const int64_t allocations = on_host::NumAllocations();
  int64_t wanted = 0;
  {
    const auto model = LoadOn("cuda:0", 1 << 22);
    ASSERT_TRUE(model.ok()) << model.status();
    wanted = on_host::BytesAllocated();
  }
  ASSERT_EQ(on_host::NumAllocations(), allocations);
  std::vector<std::string> errors;
  for (int percent = 2; percent < 100; percent += 7) {
    on_host::SetDeviceBytes(wanted * percent / 100);
    const absl::Status status = LoadOn("cuda:0", 1 << 22).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    errors.emplace_back(status.message());
    EXPECT_THAT(errors.back(), HasSubstr("llama-q8_0"));
    EXPECT_THAT(errors.back(), HasSubstr("cuda:0: cannot allocate "));
    EXPECT_THAT(errors.back(), HasSubstr(" are free"));
    EXPECT_EQ(on_host::NumAllocations(), allocations);
    // "auto" takes the CPU instead.
    const auto elsewhere = LoadOn("auto", 1 << 22);
    ASSERT_TRUE(elsewhere.ok()) << elsewhere.status();
    EXPECT_EQ((*elsewhere)->info().device, "cpu");
    EXPECT_THAT((*elsewhere)->info().device_reason, HasSubstr("cuda:0: cannot allocate "));
  }
  EXPECT_THAT(errors, testing::Contains(HasSubstr("the memory of a step: cuda:0: ")));
  EXPECT_THAT(errors, testing::Contains(HasSubstr("the KV cache (kv_bytes): cuda:0: ")));
}

TEST_F(FullDeviceTest, TheCacheHasHalfOfWhatTheDeviceHasLeft) {
  int64_t others = 0, block = 0;  // weights, and what steps need
  {
    const auto model = LoadOn("cuda:0", 1 << 22);
    ASSERT_TRUE(model.ok()) << model.status();
    others = on_host::BytesAllocated() - (*model)->info().kv_bytes;
    block = (*model)->language_model().cache().classes[0].block_bytes;
  }
  for (const int64_t left : {int64_t{1} << 18, int64_t{1} << 20}) {
    on_host::SetDeviceBytes(others + left);
    const auto model = LoadOn("cuda:0", 0);
    ASSERT_TRUE(model.ok()) << model.status();
    const CacheShape& cache = (*model)->language_model().cache();
    EXPECT_LE((*model)->info().kv_bytes, left / 2);
    EXPECT_GT((*model)->info().kv_bytes, left / 2 - cache.classes[0].block_bytes);
  }
  {  // Of several devices each has its share of the heads, and so as much again.
    const auto model = LoadOn("cuda:0+cuda:1", 1 << 22);
    ASSERT_TRUE(model.ok()) << model.status();
    const int64_t before = on_host::BytesAllocated(0), left = 1 << 20;
    on_host::SetDeviceBytes(2 * before - (*model)->info().kv_bytes / 2 + left);
    const auto other = LoadOn("cuda:0+cuda:1", 0);
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_LE((*other)->info().kv_bytes, left);
    EXPECT_GT((*other)->info().kv_bytes, left - 2 * block);
  }
  on_host::SetDeviceBytes(others + block * 3 / 2);
  const absl::Status status = LoadOn("cuda:0", 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the KV cache may have half of the "));
}

TEST_F(FullDeviceTest, AutoIsTheCpuWhereTheGpuRunsNoKernels) {
  on_host::SetRunsKernels(false);
  const absl::Cleanup runs = [] { on_host::SetRunsKernels(true); };
  const absl::Status status = LoadOn("cuda:0", 1 << 22).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the host has compute capability 9.0"));
  const auto model = LoadOn("auto", 1 << 22);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->info().device, "cpu");
  EXPECT_THAT((*model)->info().device_reason, HasSubstr("compute capability 9.0"));
}

}  // namespace
}  // namespace lm
