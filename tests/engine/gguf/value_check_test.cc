#include "engine/gguf/value_check.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/gguf/gguf_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/gguf/gguf_builder.h"
#include "tests/engine/gguf/memory_file.h"

namespace lm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The file's bytes in pieces of random sizes, each by parts of random sizes; all that is refused.
std::vector<std::string> Refused(const std::string& file,
                                 const std::vector<const TensorInfo*>& tensors,
                                 std::mt19937* random) {
  std::vector<std::string> refused;
  for (size_t begin = 0, end; begin < file.size(); begin = end) {
    end = std::min<size_t>(begin + 1 + (*random)() % 2000, file.size());
    ValueCheck check(tensors, begin, end);
    auto add = [&](size_t first, size_t count) {
      const absl::Status status = check.Add({file.data() + first, count});
      if (!status.ok()) refused.emplace_back(status.message());
      return status.ok();
    };
    bool ok = true;
    for (size_t at = begin, count; ok && at < end; at += count) {
      count = std::min<size_t>(1 + (*random)() % 300, end - at);
      ok = add(at, count);
    }
    if (!ok) continue;
    EXPECT_LE(end + check.missing(), file.size());
    add(end, check.missing());
    EXPECT_EQ(check.missing(), 0u);
  }
  return refused;
}

// Whole blocks, first and last ones, those that pieces and parts divide; gaps, a tensor next to
// another, and one that is not asked for.
TEST(ValueCheckTest, EveryBlockIsLookedAtOnceHoweverTheBytesCome) {
  std::vector<TensorInfo> all;
  uint64_t at = 100;
  for (const auto& [dtype, blocks, gap] :
       std::vector<std::tuple<DType, int, int>>{{DType::kQ8_0, 40, 0},
                                                {DType::kQ6_K, 9, 60},
                                                {DType::kF16, 700, 0},
                                                {DType::kF32, 1, 4},
                                                {DType::kQ4_0, 100, 32}}) {
    TensorInfo& tensor = all.emplace_back();
    tensor.name = std::string(Traits(dtype).name);
    tensor.dtype = dtype;
    tensor.offset = at;
    tensor.bytes = blocks * Traits(dtype).block_bytes;
    at += tensor.bytes + gap;
  }
  const std::string sound(at + 7, '\x11');
  std::vector<const TensorInfo*> asked;
  for (const TensorInfo& tensor : all) {
    if (tensor.dtype != DType::kF16) asked.push_back(&tensor);
  }
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) EXPECT_THAT(Refused(sound, asked, &random), IsEmpty());
  for (const TensorInfo& tensor : all) {
    const int block_bytes = Traits(tensor.dtype).block_bytes;
    const int blocks = tensor.bytes / block_bytes;
    for (int round = 0; round < 100; ++round) {
      const int block = round == 0 ? 0 : round == 1 ? blocks - 1 : random() % blocks;
      std::string file = sound;
      char* const place = file.data() + tensor.offset + block * block_bytes;
      if (tensor.dtype == DType::kF32) {
        std::memcpy(place, "\0\0\x80\x7f", 4);
      } else {
        // The scale of Q6_K is its last half, of the others the first.
        std::memcpy(place + (tensor.dtype == DType::kQ6_K ? block_bytes - 2 : 0), "\0\x7c", 2);
      }
      const int values = Traits(tensor.dtype).block_size;
      const std::string bad =
          values == 1 ? absl::StrCat("value ", block)
                      : absl::StrCat("the scale of ", tensor.name, " block ", block, " (values ",
                                     block * values, " to ", (block + 1) * values - 1, ")");
      if (tensor.dtype == DType::kF16) {
        EXPECT_THAT(Refused(file, asked, &random), IsEmpty());
      } else {
        EXPECT_THAT(
            Refused(file, asked, &random),
            ElementsAre(absl::StrCat("tensor '", tensor.name, "': ", bad, " is NaN or infinite")));
      }
    }
  }
}

// A tensor of some pieces, whose last block in the first piece is partly in the second.
TEST(ValueCheckTest, ADigestLooksAtValuesOnItsWay) {
  constexpr int kBlocks = 280'000;
  std::string weights(kBlocks * 34, '\x11');
  auto digest = [&](bool look) -> absl::StatusOr<std::string> {
    const auto gguf = OpenGguf(GgufBuilder()
                                   .AddTensor("first", kGgmlF32, {4}, std::string(16, '\x11'))
                                   .AddTensor("w", kGgmlQ8_0, {32, kBlocks}, weights)
                                   .Build())
                          .value();
    std::vector<const TensorInfo*> unchecked;
    // Twice, and not in the file's order.
    if (look) unchecked = {gguf->FindTensor("w"), gguf->FindTensor("first"), gguf->FindTensor("w")};
    return gguf->ContentDigest(2, unchecked);
  };
  EXPECT_EQ(digest(true).value(), digest(false).value());
  const int at_the_end_of_a_piece = (4 << 20) / 34;
  for (int block : {0, at_the_end_of_a_piece - 6, at_the_end_of_a_piece - 5,
                    at_the_end_of_a_piece - 4, at_the_end_of_a_piece - 3, at_the_end_of_a_piece - 2,
                    at_the_end_of_a_piece - 1, kBlocks - 1}) {
    const std::string sound = weights;
    std::memcpy(weights.data() + block * 34, "\0\x7c", 2);
    EXPECT_TRUE(digest(false).ok());
    EXPECT_EQ(std::string(digest(true).status().message()),
              absl::StrCat("tensor 'w': the scale of Q8_0 block ", block, " (values ", block * 32,
                           " to ", block * 32 + 31, ") is NaN or infinite"));
    weights = sound;
  }
}

}  // namespace
}  // namespace lm
