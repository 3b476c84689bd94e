// Products of many rows, which other kernels may make than those of few.
#include <cmath>

#include "tests/engine/backend/backend_fixture.h"

namespace lm {
namespace {

class ManyRowsTest : public BackendTest {
 protected:
  static constexpr int64_t kRows = 530, kN = 72, kK = 512;

  static Matrix Multiply(Backend* backend, DType dtype, const Buffer& blocks, const Matrix& x,
                         const Matrix& bias) {
    auto w = backend->LoadMatrix(dtype, kN, kK, CopyOf(blocks)).value();
    DeviceMatrix device_x(backend, x, 1), device_bias(backend, bias), out(backend, x.rows, kN, 3);
    absl::Status status =
        backend->MatMul(*w, device_x.tensor(), device_bias.tensor(), out.tensor());
    EXPECT_TRUE(status.ok()) << status;
    return out.Download();
  }
};

TEST_P(ManyRowsTest, MatchTheReference) {
  Random random(50);
  for (DType dtype : WeightTypes()) {
    SCOPED_TRACE(Traits(dtype).name);
    Buffer blocks = RandomWeights(dtype, kN, kK, &random);
    Matrix x = random.Normals(kRows, kK), bias = random.Normals(1, kN);
    for (int64_t i = 0; i < kK; ++i) x.row(7)[i] *= 1e6f;  // beyond F16
    Matrix wanted = Multiply(reference(), dtype, blocks, x, bias);
    Matrix got = Multiply(backend(), dtype, blocks, x, bias);
    ExpectProduct(*backend(), dtype, wanted, got);
  }
}

TEST_P(ManyRowsTest, DoNotDependOnHowMany) {
  Random random(51);
  for (DType dtype : {DType::kQ8_0, DType::kQ4_K, DType::kF16, DType::kBF16, DType::kF32}) {
    SCOPED_TRACE(Traits(dtype).name);
    Buffer blocks = RandomWeights(dtype, kN, kK, &random);
    Matrix x = random.Normals(kRows, kK), bias = random.Normals(1, kN);
    Matrix all = Multiply(backend(), dtype, blocks, x, bias);
    for (int64_t begin : {0, 1, 17}) {
      for (int64_t count : {1, 7, 20, 70, 300}) {
        SCOPED_TRACE(count);
        ExpectSameBits(all.Rows(begin, count),
                       Multiply(backend(), dtype, blocks, x.Rows(begin, count), bias));
      }
    }
  }
}

TEST_P(ManyRowsTest, PoisonStaysInItsRow) {
  Random random(53);
  for (DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kF16}) {
    Buffer blocks = RandomWeights(dtype, kN, kK, &random);
    Matrix x = random.Normals(kRows, kK), bias(1, kN);
    Matrix clean = Multiply(backend(), dtype, blocks, x, bias);
    x.row(3)[77] = NAN;
    x.row(515)[200] = INFINITY;
    Matrix got = Multiply(backend(), dtype, blocks, x, bias);
    for (int64_t t = 0; t < kRows; ++t) {
      if (t == 3 || t == 515) {
        for (int64_t n = 0; n < kN; ++n) EXPECT_FALSE(std::isfinite(got.row(t)[n]));
      } else {
        ExpectSameBits(clean.Rows(t, 1), got.Rows(t, 1));
      }
    }
  }
}

INSTANTIATE_BACKEND_TESTS(ManyRowsTest);

}  // namespace
}  // namespace lm
