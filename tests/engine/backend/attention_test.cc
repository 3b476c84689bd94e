#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/engine/backend/kv_fixture.h"

namespace lm {
namespace {

using AttentionTest = BackendTest;

TEST_P(AttentionTest, MatchesReferenceOverRandomShapes) {
  Random random(20);
  int32_t group = 0;
  for (int32_t head_dim : {8, 15, 20, 32, 48, 64, 80, 100, 128, 200, 256, 512, 576}) {
    const std::vector<DType> types = KvTypes(*backend());
    KvShape shape{types[random.Int(0, types.size() - 1)], static_cast<int32_t>(random.Int(1, 3)),
                  group++ % 8 + 1, head_dim};
    std::vector<TestContexts::Length> lengths;
    for (int i = 0; i < 3; ++i) {
      int64_t context = random.Int(1, 90);
      lengths.push_back({context, random.Int(1, std::min<int64_t>(context, 20))});
    }
    SCOPED_TRACE(absl::StrCat("head_dim=", head_dim, " group=", shape.group));
    TestContexts contexts(shape, lengths, head_dim);
    const Matrix got = contexts.Attend(backend());
    ExpectAttention(*backend(), contexts.dtype(), "Attention", contexts.Attend(reference()), got);
    if (portable() != nullptr) ExpectSameBits(contexts.Attend(portable()), got);
  }
}

TEST_P(AttentionTest, MatchesReferenceAcrossChunks) {
  for (int64_t context : {255, 256, 257, 600, 1030}) {
    for (DType dtype : KvTypes(*backend())) {
      TestContexts contexts({dtype, 2, 3, 64}, {{context, 5}, {7, 2}}, context);
      const Matrix got = contexts.Attend(backend());
      ExpectAttention(*backend(), contexts.dtype(), "Attention", contexts.Attend(reference()), got);
      if (portable() != nullptr) ExpectSameBits(contexts.Attend(portable()), got);
    }
  }
}

TEST_P(AttentionTest, AQueryHasTheSameBitsInEveryBatchOnAnyThreads) {
  for (DType dtype : KvTypes(*backend())) {
    TestContexts contexts({dtype, 2, 3, 48}, {{530, 40}, {1, 1}, {64, 64}, {300, 1}}, 21);
    Matrix all = contexts.Attend(backend());
    Random random(22);
    for (size_t i = 0; i < contexts.sequences().size(); ++i) {
      int64_t queries = contexts.sequences()[i].q.rows;
      for (int64_t begin = 0, count; begin < queries; begin += count) {
        count = std::min<int64_t>(random.Int(1, 13), queries - begin);
        ExpectSameBits(all.Rows(contexts.FirstRow(i) + begin, count),
                       contexts.AttendPart(backend(), i, begin, count));
      }
    }
    for (int threads : {1, 3}) {
      ExpectSameBits(all, contexts.Attend(WithThreads(threads).get()));
    }
  }
}

TEST_P(AttentionTest, ManyChunksInFewHeadsHaveTheSameBitsOnAnyThreads) {
  TestContexts contexts({DType::kF16, 1, 4, 64}, {{1500, 1}}, 23);
  Matrix wanted = contexts.Attend(WithThreads(1).get());
  ExpectSameBits(wanted, contexts.Attend(WithThreads(2).get()));
  ExpectSameBits(wanted, contexts.Attend(WithThreads(4).get()));
  ExpectAttention(*backend(), contexts.dtype(), "Attention", contexts.Attend(reference()), wanted);
}

TEST_P(AttentionTest, TheFutureDoesNotMatter) {
  // Positions after a query's own are poisoned: neither its bits nor its batch's may change.
  for (DType dtype : KvTypes(*backend())) {
    if (dtype == DType::kF16 || dtype == DType::kI8) continue;
    TestContexts contexts({dtype, 1, 2, 32}, {{300, 30}}, 24);
    Matrix clean = contexts.Attend(backend());
    TestSequence& sequence = contexts.sequences()[0];
    for (int64_t i = 0; i < sequence.v.cols; ++i) {
      sequence.v.row(299)[i] = NAN;
      sequence.k.row(299)[i] = NAN;
    }
    Matrix got = contexts.Attend(backend());
    ExpectSameBits(clean.Rows(0, 29), got.Rows(0, 29));
    EXPECT_TRUE(std::isnan(got.row(29)[0]));
  }
}

double RelativeError(const Matrix& got, const Matrix& exact) {
  double of = 0, total = 0;
  for (size_t i = 0; i < got.values.size(); ++i) {
    const double difference = double{got.values[i]} - exact.values[i];
    of += difference * difference;
    total += double{exact.values[i]} * exact.values[i];
  }
  return std::sqrt(of / total);
}

// More or less, of values that are all of a size. Where one column of the keys is far greater than
// the others, these have fewer bits.
TEST_P(AttentionTest, Int16IsAsExactAsF16) {
  if (backend()->numeric_contract() != NumericContract::kExactBlocks) return;
  for (const int32_t head_dim : {64, 256}) {
    for (const float greatest : {1.0f, 30.0f}) {
      SCOPED_TRACE(absl::StrCat("head_dim=", head_dim, " greatest=", greatest));
      auto attend = [&](DType dtype) {
        TestContexts contexts({dtype, 1, 2, head_dim}, {{600, 20}}, 37);
        TestSequence& sequence = contexts.sequences()[0];
        for (int64_t p = 0; p < sequence.context(); ++p) sequence.k.row(p)[5] *= greatest;
        return contexts.Attend(backend());
      };
      const Matrix exact = attend(DType::kF32);
      auto error = [&](DType dtype) { return RelativeError(attend(dtype), exact); };
      const double int16 = error(DType::kI16), f16 = error(DType::kF16), int8 = error(DType::kI8);
      EXPECT_LT(int16, (greatest > 1 ? 2 : 1.1) * f16);
      EXPECT_LT(int16, int8 / (greatest > 1 ? 4 : 20));  // which mixes its keys (mix_head.h)
    }
  }
}

// A bias of the keys in one column, as Qwen 2 has some, says nothing itself: it is the same in all
// scores. With one scale for a head as it is it would leave the other columns a tenth of their
// bits.
TEST_P(AttentionTest, AGreatColumnOfKeysLeavesTheOthersTheirBitsInInt8) {
  for (const int32_t head_dim : {64, 80, 128, 256}) {
    auto error = [&](float bias) {
      auto attend = [&](DType dtype) {
        TestContexts contexts({dtype, 1, 2, head_dim}, {{600, 20}}, 38);
        TestSequence& sequence = contexts.sequences()[0];
        for (int64_t p = 0; p < sequence.context(); ++p) sequence.k.row(p)[5] += bias;
        return contexts.Attend(backend());
      };
      return RelativeError(attend(DType::kI8), attend(DType::kF32));
    };
    const double without = error(0);
    EXPECT_LT(without, 0.02) << head_dim;
    EXPECT_LT(error(30), 3 * without) << head_dim;
  }
}

TEST_P(AttentionTest, WhereABlockLiesDoesNotMatter) {
  TestContexts contexts({DType::kF16, 2, 2, 64}, {{200, 9}, {150, 4}}, 25);
  Matrix before = contexts.Attend(backend());
  std::swap(contexts.sequences()[0].blocks[1], contexts.sequences()[1].blocks[3]);
  std::swap(contexts.sequences()[0].blocks[0], contexts.sequences()[0].blocks[5]);
  ExpectSameBits(before, contexts.Attend(backend()));
}

TEST_P(AttentionTest, SharedBlocksGiveTheBitsOfCopies) {
  // Some share 320 tokens, some 96 of these, one nothing; they decode, or prefill what is their
  // own.
  for (DType dtype : KvTypes(*backend())) {
    TestContexts contexts({dtype, 2, 3, 64},
                          {{340, 1}, {400, 1}, {321, 1}, {90, 7}, {600, 30}, {350, 1}, {130, 20}},
                          27);
    std::vector<TestSequence>& sequences = contexts.sequences();
    const int32_t shared_blocks[] = {0, 10, 10, 0, 10, 3, 3};
    for (size_t i = 1; i < sequences.size(); ++i) {
      const int64_t values = int64_t{shared_blocks[i]} * kKvBlockTokens * sequences[i].k.cols;
      std::copy_n(sequences[0].k.values.begin(), values, sequences[i].k.values.begin());
      std::copy_n(sequences[0].v.values.begin(), values, sequences[i].v.values.begin());
    }
    const Matrix copies = contexts.Attend(backend());
    for (size_t i = 1; i < sequences.size(); ++i) {
      std::copy_n(sequences[0].blocks.begin(), shared_blocks[i], sequences[i].blocks.begin());
    }
    ExpectSameBits(copies, contexts.Attend(backend()));
    ExpectAttention(*backend(), contexts.dtype(), "Attention", contexts.Attend(reference()),
                    copies);
  }
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  TestContexts contexts({DType::kF32, 1, 1, 16}, {{520, 3}}, 26);
  for (float& value : contexts.sequences()[0].q.values) value *= 1000;
  ExpectAttention(*backend(), contexts.dtype(), "Attention", contexts.Attend(reference()),
                  contexts.Attend(backend()));
}

TEST_P(AttentionTest, WindowsMatchReference) {
  Random random(28);
  for (int32_t window : {1, 2, 31, 32, 33, 100, 255, 256, 257, 1000}) {
    for (DType dtype : {DType::kF16, KvTypes(*backend()).back()}) {
      TestContexts contexts({dtype, 2, static_cast<int32_t>(random.Int(1, 4)), 64},
                            {{700, 40}, {33, 33}, {300, 1}}, window);
      contexts.options().window.size = window;
      SCOPED_TRACE(absl::StrCat("window=", window));
      ExpectAttention(*backend(), contexts.dtype(), "Attention", contexts.Attend(reference()),
                      contexts.Attend(backend()));
    }
  }
}

TEST_P(AttentionTest, AWindowsQueryHasTheSameBitsInEveryBatchOnAnyThreads) {
  for (int32_t window : {40, 300}) {
    TestContexts contexts({KvTypes(*backend()).back(), 2, 3, 48},
                          {{530, 40}, {1, 1}, {64, 64}, {300, 1}}, 29);
    contexts.options().window.size = window;
    Matrix all = contexts.Attend(backend());
    for (size_t i = 0; i < contexts.sequences().size(); ++i) {
      int64_t queries = contexts.sequences()[i].q.rows;
      for (int64_t begin = 0, count; begin < queries; begin += count) {
        count = std::min<int64_t>(7, queries - begin);
        ExpectSameBits(all.Rows(contexts.FirstRow(i) + begin, count),
                       contexts.AttendPart(backend(), i, begin, count));
      }
    }
    for (int threads : {1, 3}) {
      ExpectSameBits(all, contexts.Attend(WithThreads(threads).get()));
    }
  }
}

TEST_P(AttentionTest, BlocksBehindTheWindowNeedNotBeThere) {
  TestContexts contexts({KvTypes(*backend()).back(), 2, 2, 64}, {{700, 5}, {400, 1}, {650, 3}}, 30);
  contexts.options().window.size = 90;
  const Matrix before = contexts.Attend(backend());
  for (TestSequence& sequence : contexts.sequences()) {
    // Of all queries, as the first one sees the earliest.
    const int64_t seen = sequence.context() - sequence.q.rows + 1 - 90;
    for (int64_t i = 0; i < seen / kKvBlockTokens; ++i) sequence.blocks[i] = -1;
  }
  ExpectSameBits(before, contexts.AttendInFilled(backend()));
}

TEST_P(AttentionTest, SoftcapAndSinksMatchReference) {
  for (float softcap : {0.0f, 3.0f, 50.0f}) {
    const DType dtype = softcap == 3 ? DType::kF16 : KvTypes(*backend()).back();
    TestContexts contexts({dtype, 2, 3, 64}, {{300, 9}, {20, 20}, {257, 1}}, 31);
    contexts.options().softcap = softcap;
    for (TestSequence& sequence : contexts.sequences()) {
      for (float& value : sequence.q.values) value *= 4;
    }
    const Matrix without = contexts.Attend(backend());
    ExpectAttention(*backend(), contexts.dtype(), "CappedAttention", contexts.Attend(reference()),
                    without);
    Random random(32);
    contexts.set_sinks(random.Normals(1, 6));
    contexts.options().window.size = 50;
    ExpectAttention(*backend(), contexts.dtype(), "CappedAttention", contexts.Attend(reference()),
                    contexts.Attend(backend()));
  }
}

TEST_P(AttentionTest, KeysAndValuesMayDifferInLength) {
  for (DType dtype : KvTypes(*backend())) {
    for (auto [key_dim, value_dim] :
         {std::pair(24, 40), {192, 128}, {576, 512}, {8, 300}, {15, 33}, {65, 17}}) {
      SCOPED_TRACE(absl::StrCat("key_dim=", key_dim, " value_dim=", value_dim));
      TestContexts contexts({dtype, 2, 2, key_dim, value_dim}, {{270, 7}, {9, 9}, {1, 1}}, 33);
      const Matrix all = contexts.Attend(backend());
      ASSERT_EQ(all.cols, 4 * value_dim);
      ExpectAttention(*backend(), contexts.dtype(), "Attention", contexts.Attend(reference()), all);
      ExpectSameBits(all.Rows(2, 5), contexts.AttendPart(backend(), 0, 2, 5));
    }
  }
}

TEST_P(AttentionTest, SlopesMatchReference) {
  for (DType dtype : {DType::kF16, KvTypes(*backend()).back()}) {
    for (float softcap : {0.0f, 3.0f}) {
      TestContexts contexts({dtype, 2, 3, 64}, {{280, 9}, {20, 20}, {257, 1}}, 34);
      const Matrix without = contexts.Attend(reference());
      Matrix slopes(1, 6);
      for (int h = 0; h < 6; ++h) slopes.values[h] = std::exp2(-0.5f * static_cast<float>(h));
      contexts.set_slopes(slopes);
      contexts.options().softcap = softcap;
      const Matrix with = contexts.Attend(reference());
      EXPECT_NE(without.values, with.values);
      ExpectAttention(*backend(), contexts.dtype(), "CappedAttention", with,
                      contexts.Attend(backend()));
    }
  }
}

TEST_P(AttentionTest, WindowsOfEveryKindMatchReference) {
  constexpr Window kWindows[] = {
      {.causal = false},
      {.size = 50, .kind = WindowKind::kChunked},
      {.size = 256, .kind = WindowKind::kChunked},
      {.causal = false, .size = 1, .kind = WindowKind::kSymmetric},
      {.causal = false, .size = 33, .kind = WindowKind::kSymmetric},
      {.causal = false, .size = 128, .kind = WindowKind::kSymmetric},
      {.causal = false, .size = 600, .kind = WindowKind::kSymmetric},
      {.causal = false, .size = 70, .kind = WindowKind::kSliding},
  };
  for (const Window& window : kWindows) {
    for (DType dtype : {DType::kF16, KvTypes(*backend()).back()}) {
      SCOPED_TRACE(absl::StrCat(window.causal, " ", window.size, " ", window.kind));
      TestContexts contexts({dtype, 2, 2, 48}, {{300, 290}, {64, 64}, {1, 1}, {530, 9}}, 35);
      contexts.options().window = window;
      const Matrix wanted = contexts.Attend(reference());
      const Matrix got = contexts.Attend(backend());
      ExpectAttention(*backend(), contexts.dtype(), "Attention", wanted, got);
      ExpectSameBits(got, contexts.Attend(WithThreads(3).get()));
    }
  }
}

TEST_P(AttentionTest, WhatIsNotSeenDoesNotMatter) {
  constexpr Window kWindows[] = {{.causal = false},
                                 {.size = 50, .kind = WindowKind::kChunked},
                                 {.causal = false, .size = 33, .kind = WindowKind::kSymmetric}};
  for (const Window& window : kWindows) {
    TestContexts contexts({DType::kF32, 1, 1, 16}, {{200, 200}}, 36);
    contexts.options().window = window;
    const Matrix before = contexts.Attend(backend());
    TestSequence& sequence = contexts.sequences()[0];
    constexpr int64_t kChanged = 120;
    sequence.v.row(kChanged)[0] += 1000;
    Matrix after = contexts.Attend(backend());
    for (int64_t p = 0; p < sequence.context(); ++p) {
      const SeenRange seen = SeenBy(window, p, sequence.context());
      const bool sees = seen.first <= kChanged && kChanged < seen.end;
      EXPECT_EQ(after.row(p)[0] != before.values[p * before.cols], sees) << p;
    }
  }
}

TEST(WindowTest, SeesWhatItsKindSays) {
  auto seen = [](const Window& window, int64_t position) {
    const SeenRange range = SeenBy(window, position, 10);
    return std::pair(range.first, range.end);
  };
  EXPECT_EQ(seen({}, 4), std::pair(int64_t{0}, int64_t{5}));
  EXPECT_EQ(seen({.causal = false}, 4), std::pair(int64_t{0}, int64_t{10}));
  EXPECT_EQ(seen({.size = 3}, 1), std::pair(int64_t{0}, int64_t{2}));
  EXPECT_EQ(seen({.size = 3}, 4), std::pair(int64_t{2}, int64_t{5}));
  EXPECT_EQ(seen({.size = 3, .kind = WindowKind::kChunked}, 5), std::pair(int64_t{3}, int64_t{6}));
  EXPECT_EQ(seen({.size = 3, .kind = WindowKind::kChunked}, 6), std::pair(int64_t{6}, int64_t{7}));
  const Window symmetric = {.causal = false, .size = 4, .kind = WindowKind::kSymmetric};
  EXPECT_EQ(seen(symmetric, 5), std::pair(int64_t{3}, int64_t{8}));
  EXPECT_EQ(seen(symmetric, 9), std::pair(int64_t{7}, int64_t{10}));
}

TEST_P(AttentionTest, RefusesWhatLiesOutside) {
  DeviceKv kv(backend(), DType::kF16, 2, 1, 32);
  DeviceMatrix q(backend(), 4, 64), out(backend(), 4, 64), narrow(backend(), 4, 40);
  auto attend = [&](Tensor query, int32_t first_row, int32_t tokens, int32_t position,
                    std::vector<int32_t> blocks) {
    StepTables step;
    step.blocks = {std::move(blocks)};
    step.tokens.resize(tokens);
    step.sequences = {{.first_row = first_row, .num_tokens = tokens, .first_position = position}};
    const absl::Status status = backend()->BeginStep(&step);
    if (!status.ok()) return status.code();
    return backend()->Attention(query, kv.layer(), {}, out.tensor()).code();
  };
  constexpr auto kRefused = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(attend(q.tensor(), 0, 4, 60, {0, 1}), absl::StatusCode::kOk);
  EXPECT_EQ(attend(q.tensor(), 0, 5, 0, {0, 1}), kRefused);  // q has four rows
  EXPECT_EQ(attend(q.tensor(), -1, 4, 0, {0, 1}), kRefused);
  EXPECT_EQ(attend(q.tensor(), 0, 4, 61, {0, 1}), kRefused);  // beyond the blocks
  EXPECT_EQ(attend(q.tensor(), 0, 4, -1, {0, 1}), kRefused);
  EXPECT_EQ(attend(q.tensor(), 0, 4, 60, {0, 2}), kRefused);  // no such block
  EXPECT_EQ(attend(q.tensor(), 0, 4, 60, {0, -1}), kRefused);
  EXPECT_EQ(attend(narrow.tensor(), 0, 4, 0, {0}), kRefused);
}

INSTANTIATE_BACKEND_TESTS(AttentionTest);

}  // namespace
}  // namespace lm
