#include "engine/gguf/gguf_file.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/gguf/gguf_builder.h"
#include "tests/engine/gguf/memory_file.h"

namespace lm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(GgufFileTest, ReadsEveryMetadataType) {
  for (uint32_t version : {2, 3}) {
    std::string bytes = GgufBuilder()
                            .Version(version)
                            .Add("u8", uint8_t{255})
                            .Add("i8", int8_t{-128})
                            .Add("u16", uint16_t{65535})
                            .Add("i16", int16_t{-32768})
                            .Add("u32", uint32_t{4294967295})
                            .Add("i32", int32_t{-5})
                            .Add("u64", uint64_t{1} << 40)
                            .Add("i64", -(int64_t{1} << 40))
                            .Add("f32", 0.25f)
                            .Add("f64", 1e-100)
                            .Add("bool", true)
                            .Add("string", "text")
                            .Add("empty", "")
                            .Build();
    absl::StatusOr<std::unique_ptr<GgufFile>> gguf = OpenGguf(bytes);
    ASSERT_TRUE(gguf.ok()) << gguf.status();
    const Metadata& metadata = (*gguf)->metadata();
    EXPECT_EQ((*gguf)->version(), version);
    EXPECT_EQ((*gguf)->bytes(), bytes.size());
    EXPECT_EQ(metadata.values().size(), 13u);
    EXPECT_EQ(metadata.GetInt("u8").value(), 255);
    EXPECT_EQ(metadata.GetInt("i8").value(), -128);
    EXPECT_EQ(metadata.GetInt("u16").value(), 65535);
    EXPECT_EQ(metadata.GetInt("i16").value(), -32768);
    EXPECT_EQ(metadata.GetInt("u32").value(), 4294967295);
    EXPECT_EQ(metadata.GetInt("i32").value(), -5);
    EXPECT_EQ(metadata.GetInt("u64").value(), int64_t{1} << 40);
    EXPECT_EQ(metadata.GetInt("i64").value(), -(int64_t{1} << 40));
    EXPECT_EQ(metadata.GetFloat("f32").value(), 0.25);
    EXPECT_EQ(metadata.GetFloat("f64").value(), 1e-100);
    EXPECT_TRUE(metadata.GetBool("bool").value());
    EXPECT_EQ(metadata.GetString("string").value(), "text");
    EXPECT_EQ(metadata.GetString("empty").value(), "");
  }
}

TEST(GgufFileTest, ReadsArraysOfEveryType) {
  std::string bytes = GgufBuilder()
                          .Add("u8", std::vector<uint8_t>{0, 255})
                          .Add("i8", std::vector<int8_t>{-128, 127})
                          .Add("u16", std::vector<uint16_t>{65535})
                          .Add("i16", std::vector<int16_t>{-1})
                          .Add("u32", std::vector<uint32_t>{4294967295})
                          .Add("i32", std::vector<int32_t>{-1, 0, 1})
                          .Add("u64", std::vector<uint64_t>{1ull << 40})
                          .Add("i64", std::vector<int64_t>{-1})
                          .Add("f32", std::vector<float>{0.5f, -0.5f})
                          .Add("f64", std::vector<double>{0.125})
                          .Add("bools", std::vector<bool>{true, false, true})
                          .Add("strings", std::vector<std::string>{"", "a", std::string(100, 'x')})
                          .Add("none", std::vector<int32_t>{})
                          .Build();
  absl::StatusOr<std::unique_ptr<GgufFile>> gguf = OpenGguf(bytes);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  const Metadata& metadata = (*gguf)->metadata();
  EXPECT_THAT(metadata.GetInts("u8").value(), ElementsAre(0, 255));
  EXPECT_THAT(metadata.GetInts("i8").value(), ElementsAre(-128, 127));
  EXPECT_THAT(metadata.GetInts("u16").value(), ElementsAre(65535));
  EXPECT_THAT(metadata.GetInts("i16").value(), ElementsAre(-1));
  EXPECT_THAT(metadata.GetInts("u32").value(), ElementsAre(4294967295));
  EXPECT_THAT(metadata.GetInts("i32").value(), ElementsAre(-1, 0, 1));
  EXPECT_THAT(metadata.GetInts("u64").value(), ElementsAre(int64_t{1} << 40));
  EXPECT_THAT(metadata.GetInts("i64").value(), ElementsAre(-1));
  EXPECT_THAT(metadata.GetFloats("f32").value(), ElementsAre(0.5f, -0.5f));
  EXPECT_THAT(metadata.GetFloats("f64").value(), ElementsAre(0.125f));
  EXPECT_EQ(std::get<std::vector<bool>>(metadata.values().at("bools")),
            (std::vector<bool>{true, false, true}));
  EXPECT_THAT(metadata.GetStrings("strings").value(), ElementsAre("", "a", std::string(100, 'x')));
  EXPECT_TRUE(metadata.GetInts("none").value().empty());
}

TEST(GgufFileTest, ArraysLargerThanTheReadersBufferArrive) {
  std::vector<int32_t> numbers(50000);
  std::vector<std::string> strings(20000);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i) * 7 - 1000;
  for (size_t i = 0; i < strings.size(); ++i) strings[i] = std::string(i % 40, 'a' + i % 26);
  strings[7] = std::string(200000, 'z');
  absl::StatusOr<std::unique_ptr<GgufFile>> gguf = OpenGguf(
      GgufBuilder().Add("x", "odd").Add("numbers", numbers).Add("strings", strings).Build());
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  EXPECT_EQ((*gguf)->metadata().GetInts("numbers").value(),
            std::vector<int64_t>(numbers.begin(), numbers.end()));
  EXPECT_EQ((*gguf)->metadata().GetStrings("strings").value(), absl::MakeConstSpan(strings));
}

TEST(GgufFileTest, FindsAndReadsTensors) {
  std::vector<float> matrix = {1, 2, 3, 4, 5, 6};
  std::string bytes =
      GgufBuilder()
          .AddTensor("vector", DType::kF32, {3}, Bytes<float>({7, 8, 9}))
          .AddTensor("matrix", DType::kF32, {3, 2}, Bytes(matrix))
          .AddTensor("blocks", DType::kQ8_0, {64, 3, 2, 1}, std::string(64 / 32 * 34 * 6, 'q'))
          .Build();
  absl::StatusOr<std::unique_ptr<GgufFile>> gguf = OpenGguf(bytes);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  EXPECT_EQ((*gguf)->tensors().size(), 3u);
  EXPECT_EQ((*gguf)->FindTensor("absent"), nullptr);

  const TensorInfo* vector = (*gguf)->FindTensor("vector");
  ASSERT_NE(vector, nullptr);
  EXPECT_EQ(vector->rows, 1);
  EXPECT_EQ(vector->cols, 3);

  const TensorInfo* info = (*gguf)->FindTensor("matrix");
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(info->dtype, DType::kF32);
  EXPECT_EQ(info->rows, 2);
  EXPECT_EQ(info->cols, 3);
  EXPECT_EQ(info->bytes, 24u);
  EXPECT_EQ(info->offset % 32, 0u);
  std::string read(info->bytes, '\0');
  ASSERT_TRUE((*gguf)->ReadTensor(*info, absl::MakeSpan(read.data(), read.size())).ok());
  EXPECT_EQ(read, Bytes(matrix));

  const TensorInfo* blocks = (*gguf)->FindTensor("blocks");
  ASSERT_NE(blocks, nullptr);
  EXPECT_EQ(blocks->dtype, DType::kQ8_0);
  EXPECT_EQ(blocks->rows, 6);
  EXPECT_EQ(blocks->cols, 64);
  EXPECT_EQ(blocks->bytes, 408u);
  EXPECT_THAT(blocks->dims, ElementsAre(64, 3, 2, 1));
}

TEST(GgufFileTest, AcceptsEveryTensorTypeAndNoOther) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (dtype == DType::kI8 || dtype == DType::kI16) continue;
    std::string data(RowBytes(dtype, 512), '\0');
    auto gguf = OpenGguf(GgufBuilder().AddTensor("t", dtype, {256, 2}, data).Build());
    ASSERT_TRUE(gguf.ok()) << Traits(dtype).name << gguf.status();
    EXPECT_EQ((*gguf)->tensors()[0].dtype, dtype);
    EXPECT_EQ((*gguf)->tensors()[0].bytes, data.size());
  }
  int accepted = 0;
  for (uint32_t type = 0; type < 100; ++type) {
    std::string data(4096, '\1');
    accepted += OpenGguf(GgufBuilder().AddTensor("t", type, {256, 1}, data).Build()).status().ok();
    std::string message(
        OpenGguf(GgufBuilder().AddTensor("t", type, {1}, "").Build()).status().message());
    EXPECT_THAT(message, HasSubstr("tensor \"t\""));
  }
  EXPECT_EQ(accepted, 0);  // 4,096 bytes are more than any of them needs
}

// As ggml's dequantize_row_q8_K, which multiplies d by each value.
TEST(GgufFileTest, Q8KIsReadAsF32) {
  std::string blocks;
  std::vector<float> expected;
  for (const float d : {0.25f, -3e-7f, 1e30f}) {
    blocks += Bytes(d);
    for (int i = 0; i < 256; ++i) {
      blocks += static_cast<char>(i - 128);
      expected.push_back(d * static_cast<float>(i - 128));
    }
    blocks += std::string(32, '?');  // sums that nobody needs
  }
  auto gguf = OpenGguf(GgufBuilder()
                           .AddTensor("t", 15, {256, 3}, blocks)
                           .AddTensor("next", DType::kF32, {1}, Bytes<float>({7}))
                           .Build());
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  const TensorInfo& info = *(*gguf)->FindTensor("t");
  EXPECT_EQ(info.dtype, DType::kF32);
  EXPECT_EQ(info.bytes, 3u * 256 * sizeof(float));
  EXPECT_EQ(info.stored_bytes, 3u * 292);
  std::vector<float> read(2 * 256);  // the last two rows
  ASSERT_TRUE((*gguf)
                  ->ReadTensor(info,
                               absl::MakeSpan(reinterpret_cast<char*>(read.data()),
                                              read.size() * sizeof(float)),
                               256 * sizeof(float))
                  .ok());
  EXPECT_TRUE(std::equal(read.begin(), read.end(), expected.begin() + 256));
}

// Byte i of a block of the other order has values 2i and 2i + 1.
TEST(GgufFileTest, NeighboursInMxfp4BecomeHalves) {
  std::string pairs("\x7e"), halves("\x7e");
  for (int i = 0; i < 16; ++i) {
    auto value = [](int v) { return (5 * v + v / 16) % 16; };
    pairs += static_cast<char>(value(2 * i) | value(2 * i + 1) << 4);
    halves += static_cast<char>(value(i) | value(i + 16) << 4);
  }
  auto gguf = OpenGguf(GgufBuilder().AddTensor("t", 4, {32, 2}, pairs + pairs).Build());
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  const TensorInfo& info = (*gguf)->tensors()[0];
  EXPECT_EQ(info.dtype, DType::kMXFP4);
  std::string read(17, '\0');
  ASSERT_TRUE((*gguf)->ReadTensor(info, absl::MakeSpan(read.data(), read.size()), 17).ok());
  EXPECT_EQ(read, halves);
}

TEST(GgufFileTest, HonoursTheAlignmentKey) {
  for (uint32_t alignment : {8u, 64u, 65536u}) {
    auto gguf = OpenGguf(GgufBuilder()
                             .Alignment(alignment)
                             .AddTensor("a", kGgmlF32, {1}, Bytes(1.0f))
                             .AddTensor("b", kGgmlF32, {1}, Bytes(2.0f))
                             .Build());
    ASSERT_TRUE(gguf.ok()) << gguf.status();
    const TensorInfo* b = (*gguf)->FindTensor("b");
    EXPECT_EQ(b->offset % alignment, 0u);
    float value = 0;
    ASSERT_TRUE((*gguf)->ReadTensor(*b, absl::MakeSpan(reinterpret_cast<char*>(&value), 4)).ok());
    EXPECT_EQ(value, 2.0f);
  }
}

TEST(GgufFileTest, AcceptsPaddingAfterTheLastTensor) {
  std::string bytes = GgufBuilder().AddTensor("t", kGgmlF32, {1}, Bytes(1.0f)).Build();
  EXPECT_TRUE(OpenGguf(bytes + std::string(28, '\0')).ok());
  std::string no_tensors = GgufBuilder().Add("key", "x").Build();
  no_tensors.resize((no_tensors.size() + 31) / 32 * 32);
  EXPECT_TRUE(OpenGguf(no_tensors).ok());
}

TEST(GgufFileTest, AcceptsZerosBehindTheLastTensorUpToAMebibyte) {
  const std::string file =
      GgufBuilder().AddTensor("t", kGgmlF32, {8}, Bytes(std::vector<float>(8))).Build();
  const auto open = [&](const std::string& rest) { return OpenGguf(file + rest).status(); };
  EXPECT_TRUE(open(std::string(100, '\0')).ok()) << open(std::string(100, '\0'));
  EXPECT_TRUE(open(std::string(1 << 20, '\0')).ok());
  EXPECT_FALSE(open(std::string((1 << 20) + 1, '\0')).ok());
  EXPECT_FALSE(open(std::string(100, '\0') + "x").ok());
}

TEST(GgufFileTest, OpenErrorsNameThePath) {
  absl::Status missing = GgufFile::Open("/no/such/model.gguf").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/no/such/model.gguf"));
  absl::Status directory = GgufFile::Open("/tmp").status();
  EXPECT_THAT(std::string(directory.message()), HasSubstr("is a directory"));
}

// A file that shrinks after it was opened.
TEST(GgufFileTest, ReadTensorOfACutFileIsAnError) {
  std::string bytes =
      GgufBuilder().AddTensor("t", kGgmlF32, {65536}, std::string(4 * 65536, 'x')).Build();
  auto gguf = OpenGguf(
      std::make_unique<MemoryFile>(bytes.substr(0, bytes.size() - 100), "cut.gguf", bytes.size()));
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  std::string read(4 * 65536, '\0');
  absl::Status status =
      (*gguf)->ReadTensor((*gguf)->tensors()[0], absl::MakeSpan(read.data(), read.size()));
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor \"t\": 'cut.gguf' ends at"));
}

TEST(GgufFileTest, ReadErrorsPassThroughWithTheirCode) {
  std::string bytes = GgufBuilder()
                          .Add("strings", std::vector<std::string>(20000, "word"))
                          .AddTensor("t", kGgmlF32, {1}, Bytes(1.0f))
                          .Build();
  int failed = 0;
  for (int read = 0; read < 20; ++read) {
    absl::StatusOr<std::unique_ptr<GgufFile>> gguf =
        OpenGguf(std::make_unique<FaultyFile>(bytes, read));
    if (gguf.ok()) break;
    ++failed;
    EXPECT_EQ(gguf.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(gguf.status().message()), HasSubstr("reading 'faulty.gguf' at offset"));
  }
  EXPECT_GT(failed, 2);   // the 240 KB are read in several pieces,
  EXPECT_LT(failed, 10);  // and not in many small ones
}

}  // namespace
}  // namespace lm
