// Files damaged without thought: cut anywhere, any bit turned, or far larger than what they hold.
// Each must end in an error or in a file that can be read, with little memory on the way.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/gguf/allocation_watch.h"
#include "tests/engine/gguf/gguf_builder.h"
#include "tests/engine/gguf/memory_file.h"

namespace lm {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMaxBytes = 64 << 20;

GgufBuilder Sample() {
  return GgufBuilder()
      .Add("general.architecture", "llama")
      .Alignment(32)
      .Add("llama.block_count", uint32_t{2})
      .Add("llama.rope.freq_base", 10000.0f)
      .Add("tokenizer.ggml.tokens", std::vector<std::string>{"<s>", "a", "a much longer token"})
      .Add("tokenizer.ggml.scores", std::vector<float>{0, -1, -2})
      .Add("tokenizer.ggml.token_type", std::vector<int32_t>{3, 1, 1})
      .Add("flags", std::vector<bool>{true, false})
      .Add("signed", int64_t{-1})
      .AddTensor("token_embd.weight", kGgmlQ8_0, {32, 3}, std::string(3 * 34, '\1'))
      .AddTensor("output_norm.weight", kGgmlF32, {32}, std::string(128, '\2'));
}

// Reads all that the directory promises.
void ReadEverything(const GgufFile& gguf) {
  for (const TensorInfo& tensor : gguf.tensors()) {
    ASSERT_LE(tensor.bytes, gguf.bytes());
    std::string bytes(tensor.bytes, '\0');
    ASSERT_TRUE(gguf.ReadTensor(tensor, absl::MakeSpan(bytes.data(), bytes.size())).ok());
  }
}

TEST(GgufDamageTest, AFileCutAnywhereIsAnError) {
  const std::string whole = Sample().Build();
  ASSERT_TRUE(OpenGguf(whole).ok()) << OpenGguf(whole).status();
  for (size_t size = 0; size < whole.size(); ++size) {
    absl::Status status = OpenGguf(whole.substr(0, size)).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << "cut at " << size;
  }
}

// As when the file is cut between being opened and being read.
TEST(GgufDamageTest, AFileCutBehindItsSizeIsAnError) {
  const std::string whole = Sample().Build();
  const size_t header = Sample().BuildHeader().size();
  for (size_t size = 0; size < header; size += 7) {
    absl::Status status =
        OpenGguf(std::make_unique<MemoryFile>(whole.substr(0, size), "cut.gguf", whole.size()))
            .status();
    ASSERT_EQ(status.code(), absl::StatusCode::kOutOfRange) << "cut at " << size;
  }
}

TEST(GgufDamageTest, AnyBitOfTheHeaderMayTurn) {
  const std::string whole = Sample().Build();
  const size_t header_bits = Sample().BuildHeader().size() * 8;
  ResetPeakBytes();
  const size_t before = AllocatedBytes();
  int refused = 0;
  for (size_t bit = 0; bit < header_bits; ++bit) {
    std::string file = whole;
    file[bit / 8] = static_cast<char>(file[bit / 8] ^ (1 << bit % 8));
    auto gguf = OpenGguf(std::move(file));
    if (gguf.ok()) {
      ReadEverything(**gguf);
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, static_cast<int>(header_bits / 4));
  EXPECT_LT(PeakBytes() - before, 1u << 20);
}

// Bytes at the front, then zeros for as far as `size` says.
class SparseFile : public MemoryFile {
 public:
  SparseFile(std::string front, uint64_t size)
      : MemoryFile(front, "sparse.gguf", size), front_bytes_(front.size()) {}

  absl::Status Read(uint64_t offset, absl::Span<char> out) const override {
    size_t n = offset < front_bytes_ ? std::min(front_bytes_ - offset, out.size()) : 0;
    std::fill(out.begin() + n, out.end(), '\0');
    return n == 0 ? absl::OkStatus() : MemoryFile::Read(offset, out.subspan(0, n));
  }

 private:
  uint64_t front_bytes_;
};

// What opening a file of 2^50 bytes says, and whether it stays below `max_bytes` of memory.
std::string OpenSparse(const GgufBuilder& builder, size_t max_bytes) {
  auto file = std::make_unique<SparseFile>(builder.BuildHeader(), 1ull << 50);
  ResetPeakBytes();
  const size_t before = AllocatedBytes();
  absl::Status status = OpenGguf(std::move(file)).status();
  EXPECT_LT(PeakBytes() - before, max_bytes);
  return std::string(status.message());
}

TEST(GgufDamageTest, CountsThatAHugeFileAllowsAreStillBounded) {
  EXPECT_THAT(OpenSparse(GgufBuilder().NumPairs(1ull << 45), kMaxBytes), HasSubstr("empty"));
  EXPECT_THAT(OpenSparse(GgufBuilder().NumTensors(1ull << 44), kMaxBytes),
              HasSubstr("at most 65536"));
  EXPECT_THAT(OpenSparse(GgufBuilder().NumTensors(65536), kMaxBytes), HasSubstr("is empty"));
  EXPECT_THAT(OpenSparse(GgufBuilder().AddRaw("k", 8, Bytes(1ull << 45)), kMaxBytes),
              HasSubstr("a string of 35184372088832 bytes"));
  EXPECT_THAT(OpenSparse(GgufBuilder().AddRawArray("k", 8, 1ull << 45, ""), kMaxBytes),
              HasSubstr("more than 16 MiB"));
  EXPECT_THAT(OpenSparse(GgufBuilder().AddRawArray("k", 0, 1ull << 49, ""), kMaxBytes),
              HasSubstr("more than 16 MiB"));
  EXPECT_THAT(OpenSparse(GgufBuilder().AddRawArray("k", 7, 1ull << 49, ""), kMaxBytes),
              HasSubstr("more than 16 MiB"));
  EXPECT_THAT(OpenSparse(GgufBuilder().AddRawArray("tokenizer.t", 8, 1ull << 45, ""), kMaxBytes),
              HasSubstr("the vocabulary would take more than 128 MiB"));
}

// The most that can be had: a vocabulary at its limit and everything else at its own.
TEST(GgufDamageTest, TheLargestFileStaysWithin64MiBBeyondItsVocabulary) {
  constexpr size_t kVocabulary = 128 << 20;
  GgufBuilder vocabulary;
  vocabulary.AddRawArray("tokenizer.ggml.tokens", 8, kVocabulary / sizeof(std::string), "");
  EXPECT_THAT(OpenSparse(vocabulary, kVocabulary + kMaxBytes), HasSubstr("belong to nothing"));

  GgufBuilder rest;
  for (int i = 0; i < 60000; ++i) {
    rest.Add(absl::StrCat("a.key.of.some.length.", i), "");
  }
  for (int i = 0; i < 65536; ++i) {
    std::string name = "tensor.with.a.name.of.sixty-four.bytes.to.be.the.longest.";
    rest.AddTensor(absl::StrCat(name, i), kGgmlF32, {8, 1, 1, 1}, std::string(32, '\0'));
  }
  const std::string file = rest.Build();
  auto source = std::make_unique<MemoryFile>(file);
  ResetPeakBytes();
  const size_t before = AllocatedBytes();
  EXPECT_TRUE(OpenGguf(std::move(source)).ok());
  EXPECT_LT(PeakBytes() - before, kMaxBytes);
  EXPECT_GT(PeakBytes() - before, 10u << 20);  // the watch does see it
}

}  // namespace
}  // namespace lm
