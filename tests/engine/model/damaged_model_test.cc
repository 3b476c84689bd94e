// Files of real families with bytes that are wrong: they are refused with a message, or load and
// run; they never crash, hang, or take memory without end.
//
//   LM_DAMAGED_FILES=2000 model_test --gtest_filter='Damaged*'      # 25 of each family otherwise
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/model.h"
#include "tests/engine/model/run_model.h"
#include "tests/testdata.h"

namespace lm {
namespace {

int NumFiles() {
  const char* value = std::getenv("LM_DAMAGED_FILES");
  int number = 25;
  return value != nullptr && absl::SimpleAtoi(value, &number) ? number : 25;
}

class DamagedModelTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string original = absl::StrCat(LM_TESTDATA, "/models/", GetParam(), ".gguf");
    std::ifstream file(original, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    auto gguf = GgufFile::Open(original);
    ASSERT_TRUE(gguf.ok()) << gguf.status();
    for (const TensorInfo& info : (*gguf)->tensors()) {
      data_begin_ = std::min<size_t>(data_begin_, info.offset);
    }
    // The keys of the family, and the list of tensors behind the vocabulary.
    const std::string prefix = (*gguf)->metadata().GetString("general.architecture").value() + ".";
    for (size_t at = bytes_.find(prefix); at < data_begin_; at = bytes_.find(prefix, at + 1)) {
      keys_.push_back(at);
    }
    tensors_begin_ = data_begin_;
    for (const TensorInfo& info : (*gguf)->tensors()) {
      tensors_begin_ = std::min(tensors_begin_, bytes_.find(info.name));
    }
    path_ = absl::StrCat(testing::TempDir(), "/damaged_", GetParam(), ".gguf");
  }
  void TearDown() override { std::filesystem::remove(path_); }

  // One place or two: values and names of keys, the list of tensors, or tensors.
  std::string Damaged(std::mt19937& random) const {
    std::string bytes = bytes_;
    for (int count = 1 + random() % 2; count > 0; --count) {
      size_t at = data_begin_ + random() % (bytes.size() - data_begin_);
      const int kind = random() % 8;
      if (kind < 4) {
        at = keys_[random() % keys_.size()] + random() % 64;
      } else if (kind < 6) {
        at = tensors_begin_ + random() % (data_begin_ - tensors_begin_);
      }
      static constexpr unsigned char kValues[] = {0, 1, 2, 3, 7, 8, 127, 128, 255};
      bytes[at] = random() % 2 == 0 ? static_cast<char>(kValues[random() % std::size(kValues)])
                                    : static_cast<char>(bytes[at] ^ (1 << random() % 8));
    }
    return bytes;
  }

  std::string bytes_, path_;
  size_t data_begin_ = SIZE_MAX, tensors_begin_ = 0;
  std::vector<size_t> keys_;
};

TEST_P(DamagedModelTest, IsRefusedOrRuns) {
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < NumFiles(); ++i) {
    std::ofstream(path_, std::ios::binary) << Damaged(random);
    auto model = Model::Load(path_, {.threads = 1, .kv_bytes = 1 << 24});
    if (!model.ok()) {
      ++refused;
      EXPECT_FALSE(model.status().message().empty());
      continue;
    }
    LanguageModel& language_model = (*model)->language_model();
    TestSequence sequence = MakeSequence({5, 17, 3, 200, 41}, 0);
    Feed(language_model, {&sequence}, {3});
    const std::vector<float> logits = Feed(language_model, {&sequence}, {2});
    EXPECT_EQ(logits.size(), 2u * language_model.vocab_size());
    if ((*model)->info().generates) continue;
    const std::vector<float> pooled(language_model.hidden_size(), 0.5f);
    const auto made = language_model.ApplyHead((*model)->info().ranks, pooled);
    EXPECT_TRUE(!made.ok() || !made->empty());
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, NumFiles());
}

// A step with the last token of the vocabulary, of a sequence that has none yet.
absl::Status RunOneToken(LanguageModel& language_model) {
  ModelStep step;
  const int32_t token = language_model.vocab_size() - 1;
  step.tables.Append(&token, 1, 0);
  step.tables.blocks.assign(language_model.cache().classes.size(), {0});
  step.logit_rows = {0};
  StepResults results;
  const std::atomic<bool> never{false};
  return language_model.Run(std::move(step), never, &results);
}

// When it is loaded, or else before the first answer that it would have to do with.
TEST(NotFiniteModelTest, ATensorWithAScaleThatIsNoNumberIsNamed) {
  const std::string original = absl::StrCat(LM_TESTDATA, "/models/llama-q8_0.gguf");
  const std::string path = absl::StrCat(testing::TempDir(), "/not-finite-", getpid(), ".gguf");
  const auto gguf = GgufFile::Open(original).value();
  int tried = 0;
  for (const TensorInfo& tensor : gguf->tensors()) {
    if (tensor.dtype != DType::kQ8_0) continue;
    SCOPED_TRACE(tensor.name);
    std::filesystem::copy_file(original, path, std::filesystem::copy_options::overwrite_existing);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(tensor.offset + tensor.bytes - 34);  // the scale of the last block
    file.write("\0\x7e", 2);
    file.close();
    const std::string said = absl::StrCat(
        "tensor '", tensor.name, "': the scale of Q8_0 block ", tensor.bytes / 34 - 1, " (values ",
        (tensor.bytes / 34 - 1) * 32, " to ", tensor.bytes / 34 * 32 - 1, ") is NaN or infinite");
    const ModelOptions options = {.threads = 2, .kv_bytes = 1 << 24, .least_deferred = 0};
    ModelOptions at_once = options;
    at_once.least_deferred = int64_t{1} << 40;
    EXPECT_EQ(std::string(Model::Load(path, at_once).status().message()),
              absl::StrCat("model '", path, "': ", said));
    const auto model = Model::Load(path, options).value();
    LanguageModel& language_model = model->language_model();
    for (const absl::Status& error :
         {RunOneToken(language_model),
          language_model.LayOutMore(absl::InfiniteDuration()).status()}) {
      EXPECT_TRUE(absl::IsDataLoss(error)) << error;
      EXPECT_THAT(std::string(error.message()),
                  testing::EndsWith(absl::StrCat("'", path, "': ", said)));
    }
    ++tried;
  }
  EXPECT_GT(tried, 5);
  std::filesystem::remove(path);
}

// Of the experts that a table gives each token (DeepSeek 4's first layers).
TEST(RepeatedExpertTest, ATokenThatHasOneTwiceIsNamed) {
  const std::string original = absl::StrCat(LM_TESTDATA, "/models/deepseek4-f32.gguf");
  const std::string path = absl::StrCat(testing::TempDir(), "/repeated-", getpid(), ".gguf");
  const auto gguf = GgufFile::Open(original).value();
  const TensorInfo* table = gguf->FindTensor("blk.0.ffn_gate_tid2eid.weight");
  ASSERT_NE(table, nullptr);
  std::filesystem::copy_file(original, path);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  int32_t experts[2];
  file.seekg(table->offset + 7 * table->cols * sizeof(int32_t));
  file.read(reinterpret_cast<char*>(experts), sizeof(experts));
  experts[1] = experts[0];
  file.seekp(table->offset + 7 * table->cols * sizeof(int32_t));
  file.write(reinterpret_cast<const char*>(experts), sizeof(experts));
  file.close();
  EXPECT_EQ(std::string(Model::Load(path, {.threads = 1, .kv_bytes = 1 << 24}).status().message()),
            absl::StrCat("model '", path, "': tensor '", table->name, "': token 7 has expert ",
                         experts[0], " twice"));
  std::filesystem::remove(path);
}

// A file of a model that is in use.
class ChangedModelTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  std::unique_ptr<Model> Load(const char* name, int64_t least_deferred) const {
    std::filesystem::copy_file(absl::StrCat(LM_TESTDATA, "/models/", name), path_,
                               std::filesystem::copy_options::overwrite_existing);
    auto model =
        Model::Load(path_, {.threads = 1, .kv_bytes = 1 << 24, .least_deferred = least_deferred});
    EXPECT_TRUE(model.ok()) << model.status();
    TestSequence sequence = MakeSequence({5, 17, 3, 200, 41}, 0);
    Feed((*model)->language_model(), {&sequence}, {3});
    return *std::move(model);
  }
  void Change(bool cut) const {
    if (cut) {
      std::filesystem::resize_file(path_, std::filesystem::file_size(path_) / 2);
    } else {
      std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(-100, std::ios::end);
      file.write("?", 1);
    }
  }
  void ExpectLoss(const absl::Status& error) const {
    EXPECT_TRUE(absl::IsDataLoss(error)) << error;
    EXPECT_THAT(std::string(error.message()), testing::HasSubstr(path_));
    EXPECT_THAT(std::string(error.message()), testing::HasSubstr("tensor '"));
  }

  const std::string path_ = absl::StrCat(testing::TempDir(), "/changed-", getpid(), ".gguf");
};

// While its weights are still read for every step.
TEST_F(ChangedModelTest, AFileThatIsWrittenOverOrCutIsAnErrorThatNamesIt) {
  for (const bool cut : {false, true}) {
    SCOPED_TRACE(cut);
    const auto model = Load("llama-q8_0.gguf", /*least_deferred=*/0);
    LanguageModel& language_model = model->language_model();
    Change(cut);
    for (const absl::Status& error :
         {RunOneToken(language_model),
          language_model.LayOutMore(absl::InfiniteDuration()).status()}) {
      ExpectLoss(error);
    }
  }
}

// Rows of it are read for every step, however long the model has been in use.
TEST_F(ChangedModelTest, SoItIsOfEmbeddingsThatStayInTheFile) {
  for (const char* name : {"gemma4-e-f32.gguf", "gemma3n-f32.gguf"}) {
    for (const bool cut : {false, true}) {
      SCOPED_TRACE(absl::StrCat(name, " ", cut));
      const auto model = Load(name, /*least_deferred=*/int64_t{1} << 40);
      EXPECT_TRUE(RunOneToken(model->language_model()).ok());
      Change(cut);
      ExpectLoss(RunOneToken(model->language_model()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, DamagedModelTest,
                         testing::Values("gemma4-e-f32", "gemma4-moe-f32", "mamba-f32", "jamba-f32",
                                         "mamba2-f32", "falcon-h1-f32", "muse-glimmer-f32",
                                         "llama4-f32", "minicpm3-f32", "qwen3vl-f32",
                                         "deepseek2-f32", "nemotron_h_moe-f32", "granitehybrid-f32",
                                         "lfm2moe-f32", "qwen3next-f32", "gpt-oss-f32", "bert-f32",
                                         "bert-rerank-f32", "nomic-bert-moe-f32",
                                         "modern-bert-rerank-f32", "gemma-embedding-f32",
                                         "gemma3n-f32", "rwkv7-f32", "rwkv6-f32", "rwkv6qwen2-f32",
                                         "deepseek4-f32", "plamo2-f32", "kimi-linear-f32",
                                         "bailingmoe3-f32", "step35-f32", "jina-bert-v2-f32"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace lm
