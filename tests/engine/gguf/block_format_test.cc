#include "engine/gguf/block_format.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testdata.h"

namespace lm {
namespace {

using ::testing::HasSubstr;

constexpr DType kFloatTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr DType kBlockTypes[] = {
    DType::kQ4_0,   DType::kQ4_1,    DType::kQ5_0,   DType::kQ5_1,  DType::kQ8_0,
    DType::kQ2_K,   DType::kQ3_K,    DType::kQ4_K,   DType::kQ5_K,  DType::kQ6_K,
    DType::kIQ4_NL, DType::kIQ4_XS,  DType::kMXFP4,  DType::kNVFP4, DType::kIQ3_XXS,
    DType::kIQ3_S,  DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S, DType::kIQ1_S,
    DType::kIQ1_M,  DType::kTQ1_0,   DType::kTQ2_0,  DType::kQ1_0,  DType::kQ2_0};

struct Golden {
  std::string blocks;
  std::vector<float> values;
};

// ggml's own decoding; tests/testdata/gguf/make_block_golden.py says how the file was made.
Golden ReadGolden(DType dtype) {
  std::ifstream file(LM_TESTDATA "/gguf/block_golden.bin", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  size_t pos = 0;
  while (pos + 16 <= bytes.size()) {
    std::string name(bytes.data() + pos, strnlen(bytes.data() + pos, 8));
    uint32_t sizes[2];  // values, bytes
    std::memcpy(sizes, bytes.data() + pos + 8, sizeof(sizes));
    pos += 16;
    Golden golden{bytes.substr(pos, sizes[1]), std::vector<float>(sizes[0])};
    pos += sizes[1];
    std::memcpy(golden.values.data(), bytes.data() + pos, 4 * sizes[0]);
    pos += 4 * sizes[0];
    if (Traits(dtype).name == name) return golden;
  }
  return {};
}

class BlockFormatTest : public ::testing::TestWithParam<DType> {};

TEST_P(BlockFormatTest, DecodesWhatGgmlDecodesBitForBit) {
  Golden golden = ReadGolden(GetParam());
  ASSERT_FALSE(golden.values.empty());
  const int64_t values = static_cast<int64_t>(golden.values.size());
  ASSERT_EQ(static_cast<int64_t>(golden.blocks.size()), RowBytes(GetParam(), values));
  // One byte off, so that nothing depends on alignment.
  std::string unaligned = "x" + golden.blocks;
  std::vector<float> decoded(values + 1, 42.0f);
  DequantizeRow(GetParam(), unaligned.data() + 1, values, decoded.data());
  for (int64_t v = 0; v < values; ++v) {
    ASSERT_EQ(std::bit_cast<uint32_t>(decoded[v]), std::bit_cast<uint32_t>(golden.values[v]))
        << "value " << v << ": " << decoded[v] << " for " << golden.values[v];
  }
  EXPECT_EQ(decoded[values], 42.0f);
  EXPECT_TRUE(CheckFinite(GetParam(), unaligned.data() + 1, values).ok());
}

std::string TypeName(const ::testing::TestParamInfo<DType>& info) {
  return std::string(Traits(info.param).name);
}

INSTANTIATE_TEST_SUITE_P(Floats, BlockFormatTest, ::testing::Values(DType::kF16, DType::kBF16),
                         TypeName);
INSTANTIATE_TEST_SUITE_P(Blocks, BlockFormatTest, ::testing::ValuesIn(kBlockTypes), TypeName);

// Blocks enough that every entry of every codebook is among them, and what ggml's decoding of them
// hashes to (make_block_golden.py).
TEST(BlockFormatTest, EveryCodeIsWhatGgmlTakesItFor) {
  constexpr struct {
    DType dtype;
    uint64_t digest;
  } kDigests[] = {
      {DType::kNVFP4, 0x9fb455a3163a2325},  {DType::kIQ3_XXS, 0x86759a8187af6325},
      {DType::kIQ3_S, 0x727516b723de2325},  {DType::kIQ2_XXS, 0xeeb19ab06dc32325},
      {DType::kIQ2_XS, 0xc13e9daf3d260325}, {DType::kIQ2_S, 0x457cadd497a56325},
      {DType::kIQ1_S, 0x1e0611078bc62325},  {DType::kIQ1_M, 0x36453f0323ce9e45},
      {DType::kTQ1_0, 0x0fdff9f2b4622325},  {DType::kTQ2_0, 0xc77124a28fe22325},
      {DType::kQ1_0, 0x7261d81e9ec22325},   {DType::kQ2_0, 0xdfc9640724f22325},
  };
  constexpr int kBlocks = 4096;
  for (const auto& [dtype, digest] : kDigests) {
    const DTypeTraits& traits = Traits(dtype);
    std::string blocks(kBlocks * traits.block_bytes, '\0');
    uint64_t state = 1;
    for (char& byte : blocks) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      byte = static_cast<char>(state >> 56);
    }
    constexpr uint16_t kOne = 0x3c00;
    for (int b = 0; b < kBlocks; ++b) {
      char* block = blocks.data() + b * traits.block_bytes;
      if (dtype == DType::kIQ1_M) {
        block[55] = static_cast<char>(0x30 | (block[55] & 15));
      } else if (dtype != DType::kNVFP4) {
        const bool last = dtype == DType::kTQ1_0 || dtype == DType::kTQ2_0;
        std::memcpy(block + (last ? traits.block_bytes - 2 : 0), &kOne, sizeof(kOne));
      }
    }
    std::vector<float> values(int64_t{kBlocks} * traits.block_size);
    DequantizeRow(dtype, blocks.data(), values.size(), values.data());
    uint64_t hash = 0xcbf29ce484222325;
    for (float value : values) hash = (hash ^ std::bit_cast<uint32_t>(value)) * 0x100000001b3;
    EXPECT_EQ(hash, digest) << traits.name;
  }
}

TEST(BlockFormatTest, F32IsCopied) {
  const float values[] = {0.0f, -0.0f, 1e-45f, 3.5f};
  float decoded[4];
  DequantizeRow(DType::kF32, values, 4, decoded);
  EXPECT_EQ(std::memcmp(values, decoded, sizeof(values)), 0);
}

// A block is finite exactly where its decoding is: every bit of the block's front and back, where
// the scales are, is turned to make NaN and infinity.
TEST(CheckFiniteTest, FindsWhateverDecodesToNanOrInfinity) {
  for (DType dtype : kBlockTypes) {
    const DTypeTraits& traits = Traits(dtype);
    int bad_places = 0;
    for (int place = 0; place + 2 <= traits.block_bytes; place += 2) {
      for (uint16_t half :
           {0x7c00, 0xfc00, 0x7e00, 0x7c01, 0x7bff, 0x11ff, 0x77fc, 0x77fd, 0x77ff}) {
        std::string blocks(3 * traits.block_bytes, dtype == DType::kIQ1_M ? '\xc1' : '\x11');
        std::memcpy(blocks.data() + traits.block_bytes + place, &half, 2);
        std::vector<float> decoded(3 * traits.block_size);
        DequantizeRow(dtype, blocks.data(), decoded.size(), decoded.data());
        bool finite = true;
        for (float value : decoded) finite &= std::isfinite(value);
        absl::Status status = CheckFinite(dtype, blocks.data(), decoded.size());
        EXPECT_EQ(status.ok(), finite) << traits.name << " byte " << place;
        if (!status.ok()) {
          EXPECT_THAT(std::string(status.message()), HasSubstr("block 1 (values "));
          ++bad_places;
        }
      }
    }
    // NVFP4 has no scale that is not finite.
    const int least = dtype == DType::kNVFP4                             ? 0
                      : dtype == DType::kMXFP4 || dtype == DType::kIQ1_M ? 1
                                                                         : 4;
    EXPECT_GE(bad_places, least) << traits.name;
  }
}

TEST(CheckFiniteTest, FindsTheFirstBadValueOfPlainFloats) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (DType dtype : kFloatTypes) {
    const int bytes = Traits(dtype).block_bytes;
    for (float bad : {nan, -nan, INFINITY, -INFINITY}) {
      std::string row(1000 * bytes, '\x11');
      uint32_t bits = std::bit_cast<uint32_t>(bad);
      uint16_t half = static_cast<uint16_t>(bits >> 16);  // BF16
      if (dtype == DType::kF16) half = (half & 0x8000) | (std::isnan(bad) ? 0x7e00 : 0x7c00);
      for (int place : {777, 999}) {
        std::memcpy(row.data() + place * bytes,
                    bytes == 4 ? static_cast<void*>(&bits) : static_cast<void*>(&half), bytes);
      }
      EXPECT_TRUE(CheckFinite(dtype, row.data(), 777).ok());
      EXPECT_EQ(std::string(CheckFinite(dtype, row.data(), 1000).message()),
                "value 777 is NaN or infinite");
    }
  }
}

TEST(CheckFiniteTest, SaysWhichBlockAndValues) {
  std::string blocks(5 * 144, '\0');
  blocks[3 * 144 + 3] = '\x7c';  // dmin of block 3
  EXPECT_EQ(std::string(CheckFinite(DType::kQ4_K, blocks.data(), 5 * 256).message()),
            "the scale of Q4_K block 3 (values 768 to 1023) is NaN or infinite");
  EXPECT_TRUE(CheckFinite(DType::kQ4_K, blocks.data(), 3 * 256).ok());
  EXPECT_TRUE(CheckFinite(DType::kQ4_K, blocks.data(), 0).ok());
}

}  // namespace
}  // namespace lm
