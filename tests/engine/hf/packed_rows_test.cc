// What is believed of packed matrices (their values are held to the definition by
// tests/extension/hf_test.py), and how often they are read.
#include "engine/hf/packed_rows.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/hf/hf_folder.h"

namespace lm {
namespace {

using ::testing::HasSubstr;

constexpr int kOutputs = 8;

// A matrix of 4 bits, 8 outputs and so many inputs and groups; of GPTQ's layout, or AWQ's.
std::vector<HfFolder::Tensor> Matrix(const std::string& stem, int inputs, int groups,
                                     bool awq = false) {
  const int words = inputs * kOutputs / 8;
  return {
      {stem + ".qweight", "I32",
       awq ? absl::StrCat("[", inputs, ",1]") : absl::StrCat("[", inputs / 8, ",", kOutputs, "]"),
       std::string(words * 4, '\x59')},
      {stem + ".qzeros", "I32", absl::StrCat("[", groups, ",1]"), std::string(groups * 4, '\x77')},
      {stem + ".scales", "F16", absl::StrCat("[", groups, ",", kOutputs, "]"),
       std::string(groups * kOutputs * 2, '\x11')},
  };
}

std::string Failure(const HfFolder& folder, const PackedScheme& scheme) {
  const Safetensors weights = Safetensors::Open(folder.path()).value();
  return std::string(
      MakePackedRows(weights, "a", scheme, {}, MakePackedWords()).status().message());
}

TEST(PackedRowsTest, ThereAreAsManyGroupsAsTheirSizeSays) {
  HfFolder folder;
  for (const bool awq : {false, true}) {
    folder.WriteTensors(Matrix("a", 128, 4, awq));
    EXPECT_EQ(Failure(folder, {.awq = awq, .group_size = 32}), "");
    EXPECT_THAT(Failure(folder, {.awq = awq, .group_size = 64}),
                HasSubstr("\"a.scales\": wanted 2 groups of 128 inputs, got 4"));
    EXPECT_THAT(Failure(folder, {.awq = awq, .group_size = -1}),
                HasSubstr("wanted 1 groups of 128 inputs, got 4"));
    EXPECT_THAT(Failure(folder, {.awq = awq, .group_size = 16}),
                HasSubstr("wanted 8 groups of 128 inputs, got 4"));
  }
  folder.WriteTensors(Matrix("a", 128, 3));  // the last one smaller
  EXPECT_EQ(Failure(folder, {.group_size = 48}), "");
  std::vector<HfFolder::Tensor> tensors = Matrix("a", 128, 129);
  tensors.push_back({"a.g_idx", "I32", "[128]", std::string(128 * 4, '\0')});
  folder.WriteTensors(tensors);
  EXPECT_THAT(Failure(folder, {.group_size = 32}),
              HasSubstr("wanted at most 128 groups of 128 inputs, got 129"));
  const int many = (1 << 20) + 8;
  folder.WriteTensors(Matrix("a", many, 1));
  EXPECT_THAT(Failure(folder, {.group_size = -1}),
              HasSubstr("at most 1048576 inputs, got 1048584"));
}

TEST(PackedRowsTest, MatricesReadInTurnAreReadFromTheFileOnce) {
  HfFolder folder;
  std::vector<HfFolder::Tensor> tensors = Matrix("a", 64, 2);
  for (HfFolder::Tensor& tensor : Matrix("b", 64, 2)) tensors.push_back(std::move(tensor));
  folder.WriteTensors(tensors);
  const Safetensors weights = Safetensors::Open(folder.path()).value();
  const std::shared_ptr<PackedWords> words = MakePackedWords();
  const PackedScheme scheme = {.group_size = 32};
  const auto a = MakePackedRows(weights, "a", scheme, {}, words).value();
  const auto b = MakePackedRows(weights, "b", scheme, {}, words).value();
  std::string row_a(a->row_bytes(), '\0'), row_b(b->row_bytes(), '\0');
  ASSERT_TRUE(a->Read(0, 1, row_a.data()).ok());
  ASSERT_TRUE(b->Read(0, 1, row_b.data()).ok());
  EXPECT_EQ(row_a, row_b);
  std::filesystem::resize_file(folder.path() + "/model.safetensors", 0);
  EXPECT_TRUE(a->Read(1, 1, row_a.data()).ok());
  EXPECT_TRUE(b->Read(1, 1, row_b.data()).ok());
  EXPECT_EQ(row_a, row_b);
}

}  // namespace
}  // namespace lm
