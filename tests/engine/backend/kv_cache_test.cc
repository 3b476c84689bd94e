#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/engine/backend/kv_fixture.h"

namespace lm {
namespace {

using KvCacheTest = BackendTest;

// cos and sin of rope_dim / 2 angles a row.
Matrix RandomRope(int64_t rows, int64_t rope_dim, Random* random) {
  Matrix rope(rows, rope_dim);
  for (int64_t i = 0; i < rows * rope_dim / 2; ++i) {
    float angle = 3 * random->Normal();
    rope.values[2 * i] = std::cos(angle);
    rope.values[2 * i + 1] = std::sin(angle);
  }
  return rope;
}

TEST_P(KvCacheTest, RotatesAsTheReferenceToTheBit) {
  Random random(30);
  for (RopePairing pairing : {RopePairing::kAdjacent, RopePairing::kHalves}) {
    for (int32_t head_dim : {8, 20, 64, 80, 128, 512}) {
      for (int32_t rope_dim : {head_dim, head_dim / 4 * 2, 0}) {
        for (const DType dtype : KvTypes(*backend())) {
          SCOPED_TRACE(
              absl::StrCat("head_dim=", head_dim, " rope_dim=", rope_dim, " ", Traits(dtype).name));
          int64_t rows = random.Int(1, 20);
          Matrix q = random.Normals(rows, 6 * head_dim), k = random.Normals(rows, 2 * head_dim);
          Matrix v = random.Normals(rows, 2 * head_dim), rope = RandomRope(rows, rope_dim, &random);
          std::vector<int64_t> slots;
          for (int64_t t = 0; t < rows; ++t) slots.push_back((t * 7 + 3) % 64);
          auto run = [&](Backend* backend, Matrix* q_out) {
            DeviceKv kv(backend, dtype, 2, 2, head_dim, head_dim, /*whole=*/true);
            DeviceMatrix dq(backend, q, 1), dk(backend, k, 2), dv(backend, v, 3);
            const StepTables step = StepAt(slots, {rope_dim, rope.values});
            EXPECT_TRUE(backend->BeginStep(&step).ok());
            EXPECT_TRUE(backend
                            ->RopeAndStoreKv(dq.tensor(), dk.tensor(), dv.tensor(),
                                             {.table = 0, .pairing = pairing}, kv.layer())
                            .ok());
            *q_out = dq.Download();
            return dk.Download();
          };
          Matrix wanted_q(0, 0), got_q(0, 0);
          Matrix wanted_k = run(reference(), &wanted_q);
          ExpectMatches("RopeAndStoreKv", wanted_k, run(backend(), &got_q));
          ExpectMatches("RopeAndStoreKv", wanted_q, got_q);
        }
      }
    }
  }
}

// What a context of one token answers: its value.
Matrix ReadValue(Backend* backend, const DeviceKv& kv, std::vector<int32_t> blocks,
                 int32_t position) {
  DeviceMatrix q(backend, 1, kv.layer().kv_heads * kv.layer().key_dim);
  DeviceMatrix out(backend, 1, q.tensor().cols);
  StepTables step;
  AppendSequence(1, position, blocks, &step);
  EXPECT_TRUE(backend->BeginStep(&step).ok());
  EXPECT_TRUE(backend->Attention(q.tensor(), kv.layer(), {}, out.tensor()).ok());
  return out.Download();
}

TEST_P(KvCacheTest, StoresValuesInTheTypeOfTheCache) {
  Random random(31);
  for (DType dtype : KvTypes(*backend())) {
    DeviceKv kv(backend(), dtype, 3, 2, 20);
    Matrix k = random.Normals(1, 40), v = random.Normals(1, 40);
    kv.Store(k, v, {64});  // block 2, token 0
    Matrix got = ReadValue(backend(), kv, {2}, 0);
    for (int i = 0; i < 40; ++i) {
      float wanted = v.values[i];
      if (dtype == DType::kF16) {
        // 11 significant bits, to nearest.
        float unit = std::ldexp(1.0f, std::ilogb(wanted) - 10);
        wanted = std::nearbyint(wanted / unit) * unit;
      } else if (dtype == DType::kI8) {
        // 127 steps to the largest of the head.
        float max = 0;
        for (int j = i / 20 * 20; j < i / 20 * 20 + 20; ++j) {
          max = std::max(max, std::abs(v.values[j]));
        }
        wanted = max / 127.0f * std::nearbyint(wanted * (127.0f / max));
      }
      if (dtype == DType::kI16) {
        // 8,191 steps, and what a product with codes of the weight rounds.
        float max = 0;
        for (int j = i / 20 * 20; j < i / 20 * 20 + 20; ++j) {
          max = std::max(max, std::abs(v.values[j]));
        }
        EXPECT_NEAR(got.values[i], wanted, max / 16382 * 1.001f);
        continue;
      }
      EXPECT_EQ(got.values[i], wanted);
    }
  }
}

TEST_P(KvCacheTest, ABlocksBytesAnswerAsItDoesAndCanBeWrittenOn) {
  Random random(32);
  for (DType dtype : KvTypes(*backend())) {
    for (int32_t tokens : {1, 13, 32}) {
      DeviceKv kv(backend(), dtype, 4, 3, 24);
      Matrix k = random.Normals(128, 72), v = random.Normals(128, 72);
      std::vector<int64_t> slots;
      for (int64_t i = 0; i < 128; ++i) slots.push_back(i);
      kv.Store(k, v, slots);
      Matrix wanted = ReadValue(backend(), kv, {3}, tokens - 1);
      const KvLayer& layer = kv.layer();
      const auto block = [&](int64_t i) {
        return static_cast<char*>(layer.keys) + i * layer.block_stride;
      };
      ASSERT_TRUE(backend()->Copy(block(3), block(1), layer.block_stride).ok());
      ExpectSameBits(wanted, ReadValue(backend(), kv, {1}, tokens - 1));
      if (tokens == 32) continue;
      // Other tokens behind the first ones, in the copy and in a block of its own.
      std::vector<int64_t> own, copy;
      for (int64_t i = 0; i < 32; ++i) own.push_back(2 * 32 + i);
      for (int64_t i = tokens; i < 32; ++i) copy.push_back(32 + i);
      const Matrix rest_k = k.Rows(0, 32 - tokens), rest_v = v.Rows(0, 32 - tokens);
      kv.Store(k.Rows(96, 32), v.Rows(96, 32), own);
      own.erase(own.begin(), own.begin() + tokens);
      kv.Store(rest_k, rest_v, own);
      kv.Store(rest_k, rest_v, copy);
      ExpectSameBits(ReadValue(backend(), kv, {2}, 31), ReadValue(backend(), kv, {1}, 31));
    }
  }
}

TEST_P(KvCacheTest, CodesKeepWhatIsNotFiniteToItsTokenAndHead) {
  Random random(34);
  for (const DType dtype : KvTypes(*backend())) {
    if (!HasScales(dtype)) continue;
    for (float bad : {NAN, INFINITY, -INFINITY}) {
      DeviceKv kv(backend(), dtype, 1, 2, 16);
      Matrix k = random.Normals(2, 32), v = random.Normals(2, 32);
      for (int i = 0; i < 16; ++i) v.row(0)[i] = 0;  // a head of zeros stays zero
      v.row(1)[5] = bad;
      kv.Store(k, v, {0, 1});
      Matrix first = ReadValue(backend(), kv, {0}, 0), both = ReadValue(backend(), kv, {0}, 1);
      for (int i = 0; i < 16; ++i) {
        EXPECT_EQ(first.values[i], 0);
        EXPECT_TRUE(std::isnan(both.values[i])) << bad;
        EXPECT_TRUE(std::isfinite(both.values[16 + i]));
      }
    }
  }
}

// In binary16 the CUDA backend has the greatest there is for it, the others infinity.
TEST_P(KvCacheTest, F16ValuesBeyondTheRangeAreTheGreatestOrInfinite) {
  const bool saturates = backend()->numeric_contract() == NumericContract::kRowInvariant;
  for (const int dim : {16, 18}) {
    DeviceKv kv(backend(), DType::kF16, 1, 1, dim);
    Matrix k(1, dim), v(1, dim);
    const float stored[] = {65504, 65519, 65520, 1e6f, -1e30f, INFINITY, NAN};
    std::copy(std::begin(stored), std::end(stored), v.row(0));
    kv.Store(k, v, {0});
    const Matrix got = ReadValue(backend(), kv, {0}, 0);
    for (int i = 0; i < 5; ++i) {
      const float wanted = i < 2 || saturates ? 65504 : INFINITY;
      EXPECT_EQ(got.values[i], std::copysign(wanted, stored[i])) << stored[i];
    }
    EXPECT_EQ(got.values[5], INFINITY);
    EXPECT_TRUE(std::isnan(got.values[6]));
    EXPECT_EQ(got.values[7], 0);
  }
}

TEST_P(KvCacheTest, AZeroedBlockHoldsNothing) {
  Random random(33);
  DeviceKv kv(backend(), DType::kF16, 3, 2, 16);
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < 96; ++i) slots.push_back(i);
  kv.Store(random.Normals(96, 32), random.Normals(96, 32), slots);
  Matrix first = ReadValue(backend(), kv, {0}, 31), last = ReadValue(backend(), kv, {2}, 31);
  ASSERT_TRUE(kv.ZeroBlock(1).ok());
  for (float value : ReadValue(backend(), kv, {1}, 31).values) EXPECT_EQ(value, 0);
  ExpectSameBits(first, ReadValue(backend(), kv, {0}, 31));
  ExpectSameBits(last, ReadValue(backend(), kv, {2}, 31));
}

TEST_P(KvCacheTest, RefusesWhatLiesOutside) {
  DeviceKv kv(backend(), DType::kF16, 2, 1, 16);
  const KvLayer& layer = kv.layer();
  DeviceMatrix q(backend(), 1, 32), k(backend(), 1, 16), v(backend(), 1, 16),
      wide(backend(), 1, 18);
  auto store = [&](Tensor key, int32_t rope_dim, std::vector<int64_t> slots) {
    const int64_t rows = static_cast<int64_t>(slots.size());
    const StepTables step = StepAt(slots, {rope_dim, std::vector<float>(rows * rope_dim)});
    return backend()->BeginStep(&step).ok() &&
           backend()->RopeAndStoreKv(q.tensor(), key, v.tensor(), {.table = 0}, layer).ok();
  };
  EXPECT_TRUE(store(k.tensor(), 16, {63}));
  EXPECT_FALSE(store(k.tensor(), 16, {64}));    // no such block
  EXPECT_FALSE(store(k.tensor(), 16, {1, 2}));  // one row
  EXPECT_FALSE(store(k.tensor(), 18, {1}));
  EXPECT_FALSE(store(wide.tensor(), 16, {1}));
  const StepTables step = StepAt({1}, {16, std::vector<float>(16)});
  ASSERT_TRUE(backend()->BeginStep(&step).ok());
  EXPECT_FALSE(
      backend()->RopeAndStoreKv(q.tensor(), k.tensor(), v.tensor(), {.table = 1}, layer).ok());
}

TEST_P(KvCacheTest, BytesAreCopiedAndZeroed) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  Buffer buffer = backend()->Allocate(values.size() * sizeof(float)).value();
  auto* data = static_cast<char*>(buffer.data());
  ASSERT_TRUE(backend()->Upload(values.data(), data, buffer.bytes()).ok());
  ASSERT_TRUE(backend()->Copy(data, data + 12, 8).ok());
  ASSERT_TRUE(backend()->Zero(data + 4, 4).ok());
  std::vector<float> got(6);
  ASSERT_TRUE(backend()->Download(data, got.data(), buffer.bytes()).ok());
  EXPECT_EQ(got, (std::vector<float>{1, 0, 3, 1, 2, 6}));
}

INSTANTIATE_BACKEND_TESTS(KvCacheTest);

}  // namespace
}  // namespace lm
