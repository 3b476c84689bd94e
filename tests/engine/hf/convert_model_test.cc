// What converting does with tensors of unusual names and shapes, and with a file that turns out to
// be of no use. Types, mixes and values: tests/extension/hf_test.py.
#include "engine/convert/convert_model.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/gguf/gguf_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/gguf/gguf_builder.h"
#include "tests/engine/hf/hf_folder.h"

namespace lm {
namespace {

using ::testing::HasSubstr;

class ConvertModelTest : public ::testing::Test {
 protected:
  absl::Status Convert(const GgufBuilder& gguf, const std::string& type) {
    folder_.Write("in.gguf", gguf.Build());
    return ConvertModel(Path("in.gguf"), Path("out.gguf"), type, 1).status();
  }
  std::string Path(const std::string& name) const { return folder_.path() + "/" + name; }

  const HfFolder folder_;
};

TEST_F(ConvertModelTest, LongVectorsAreCopiedPieceByPiece) {
  std::vector<float> values(5 << 19);  // two pieces and a half
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  GgufBuilder gguf;
  gguf.AddTensor("vector", kGgmlF32, {values.size()}, Bytes(values));
  ASSERT_TRUE(Convert(gguf, "Q8_0").ok());
  const auto made = GgufFile::Open(Path("out.gguf")).value();
  std::vector<float> copied(values.size());
  const absl::Span<char> bytes(reinterpret_cast<char*>(copied.data()),
                               copied.size() * sizeof(float));
  ASSERT_TRUE(made->ReadTensor(*made->FindTensor("vector"), bytes).ok());
  EXPECT_EQ(copied, values);
}

TEST_F(ConvertModelTest, NumbersOfThingsStay) {
  const std::vector<int32_t> values = {3, 1, 2, 0, 7, 5, 6, 4};
  GgufBuilder gguf;
  gguf.AddTensor("blk.0.ffn_gate_tid2eid.weight", kGgmlI32, {2, 4}, Bytes(values));
  ASSERT_TRUE(Convert(gguf, "Q8_0").ok());
  const auto made = GgufFile::Open(Path("out.gguf")).value();
  const TensorInfo* copied = made->FindTensor("blk.0.ffn_gate_tid2eid.weight");
  ASSERT_EQ(copied->dtype, DType::kI32);
  std::vector<int32_t> read(values.size());
  ASSERT_TRUE(
      made->ReadTensor(*copied, absl::MakeSpan(reinterpret_cast<char*>(read.data()), copied->bytes))
          .ok());
  EXPECT_EQ(read, values);
}

TEST_F(ConvertModelTest, OfTimeMixingTheLargeMatricesAreConverted) {
  constexpr const char* kLarge[] = {
      "time_mix_key",    "time_mix_value",  "time_mix_receptance", "time_mix_gate",
      "time_mix_output", "channel_mix_key", "channel_mix_value",   "channel_mix_receptance"};
  constexpr const char* kSmall[] = {"time_mix_w1",         "time_mix_w2",       "time_mix_a1",
                                    "time_mix_g2",         "time_mix_decay_w1", "time_mix_decay_w2",
                                    "time_mix_lerp_fused", "time_mix_lerp_x",   "time_mix_first",
                                    "time_mix_r_k",        "channel_mix_lerp_k"};
  GgufBuilder gguf;
  auto add = [&gguf](const char* name) {
    gguf.AddTensor(absl::StrCat("blk.0.", name, ".weight"), kGgmlF32, {32, 2},
                   Bytes(std::vector<float>(64, 1)));
  };
  for (const char* name : kLarge) add(name);
  for (const char* name : kSmall) add(name);
  ASSERT_TRUE(Convert(gguf, "Q8_0").ok());
  const auto made = GgufFile::Open(Path("out.gguf")).value();
  auto type = [&made](const char* name) {
    return made->FindTensor(absl::StrCat("blk.0.", name, ".weight"))->dtype;
  };
  for (const char* name : kLarge) EXPECT_EQ(type(name), DType::kQ8_0) << name;
  for (const char* name : kSmall) EXPECT_EQ(type(name), DType::kF32) << name;
}

TEST_F(ConvertModelTest, LayersBeyondAllModelsAreNoLayers) {
  GgufBuilder gguf;
  for (const char* name : {"blk.0.attn_v.weight", "blk.2147483647.attn_v.weight"}) {
    gguf.AddTensor(name, kGgmlF32, {256, 1}, Bytes(std::vector<float>(256, 1)));
  }
  ASSERT_TRUE(Convert(gguf, "Q4_K_M").ok());
  const auto made = GgufFile::Open(Path("out.gguf")).value();
  EXPECT_EQ(made->FindTensor("blk.0.attn_v.weight")->dtype, DType::kQ6_K);
  EXPECT_EQ(made->FindTensor("blk.2147483647.attn_v.weight")->dtype, DType::kQ4_K);
}

TEST_F(ConvertModelTest, RowsThatNoModelHasAreRefused) {
  const size_t cols = (1 << 20) + 32;
  GgufBuilder gguf;
  gguf.AddTensor("blk.0.ffn_up.weight", kGgmlF32, {cols, 1}, Bytes(std::vector<float>(cols, 1)));
  EXPECT_THAT(std::string(Convert(gguf, "Q8_0").message()),
              HasSubstr("\"blk.0.ffn_up.weight\": rows of 1048608 values, at most 1048576"));
  EXPECT_TRUE(Convert(gguf, "F32").ok());  // a copy
}

TEST_F(ConvertModelTest, AppearsWhenItWasTriedOut) {
  GgufBuilder gguf;
  gguf.AddTensor("blk.0.ffn_up.weight", kGgmlF32, {32, 1}, Bytes(std::vector<float>(32, 1)));
  folder_.Write("in.gguf", gguf.Build());
  auto fail = [&](const std::string& path) -> absl::Status {
    EXPECT_TRUE(GgufFile::Open(path).ok());
    EXPECT_FALSE(std::filesystem::exists(Path("out.gguf")));
    return absl::CancelledError("no");
  };
  EXPECT_TRUE(absl::IsCancelled(
      ConvertModel(Path("in.gguf"), Path("out.gguf"), "F16", 1, {}, fail).status()));
  EXPECT_TRUE(CheckConversion(Path("out.gguf"), "F16").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(CheckConversion(Path("out.gguf"), "F17")));
  EXPECT_TRUE(ConvertModel(Path("in.gguf"), Path("out.gguf"), "F16", 1).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(CheckConversion(Path("out.gguf"), "F16")));
}

TEST_F(ConvertModelTest, ASourceThatIsWrittenOverMeanwhileIsRefused) {
  GgufBuilder gguf;
  gguf.AddTensor("blk.0.ffn_up.weight", kGgmlF32, {1024, 4096},
                 Bytes(std::vector<float>(4 << 20, 1)));
  folder_.Write("in.gguf", gguf.Build());
  for (const bool removed : {false, true}) {
    bool changed = false;
    const CheckpointScope scope([&] {  // asked between two pieces
      if (std::exchange(changed, true)) return false;
      if (removed) {
        std::filesystem::remove(Path("in.gguf"));
      } else {
        folder_.Write("in.gguf", gguf.Build());
      }
      return false;
    });
    const absl::Status status = ConvertModel(Path("in.gguf"), Path("out.gguf"), "F16", 1).status();
    ASSERT_TRUE(changed);
    if (removed) {
      EXPECT_TRUE(status.ok()) << status;
    } else {
      EXPECT_EQ(std::string(status.message()),
                absl::StrCat("\"", Path("in.gguf"),
                             "\": was replaced or changed while it was being converted"));
      EXPECT_TRUE(CheckConversion(Path("out.gguf"), "F16").ok());  // nothing is left
    }
  }
}

}  // namespace
}  // namespace lm
