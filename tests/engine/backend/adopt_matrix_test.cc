// Matrices that a backend takes as it laid them out before.
#include <cstring>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/digest.h"
#include "tests/engine/backend/backend_fixture.h"

namespace lm {
namespace {

constexpr int64_t kN = 72, kK = 512;

class AdoptMatrixTest : public BackendTest {
 protected:
  Matrix Multiply(const WeightMatrix& w, const Matrix& x) {
    DeviceMatrix device_x(backend(), x, 1), out(backend(), x.rows, kN, 3);
    const absl::Status status = backend()->MatMul(w, device_x.tensor(), {}, out.tensor());
    EXPECT_TRUE(status.ok()) << status;
    return out.Download();
  }
};

Buffer CopyOfBytes(absl::Span<const char> bytes) {
  Buffer copy = Buffer::AllocateHost(bytes.size()).value();
  std::memcpy(copy.data(), bytes.data(), bytes.size());
  return copy;
}

TEST_P(AdoptMatrixTest, MultipliesLikeTheOneThatWasLoaded) {
  if (!backend()->adopts_matrices()) {
    EXPECT_TRUE(
        absl::IsUnimplemented(backend()->AdoptMatrix(DType::kF32, kN, kK, Buffer()).status()));
    return;
  }
  Random random(70);
  for (DType dtype : WeightTypes()) {
    SCOPED_TRACE(std::string(Traits(dtype).name));
    const Buffer blocks = RandomWeights(dtype, kN, kK, &random);
    const Matrix x = random.Normals(5, kK);
    const auto loaded = backend()->LoadMatrix(dtype, kN, kK, blocks).value();
    ASSERT_FALSE(loaded->packed().empty());
    const auto adopted =
        backend()->AdoptMatrix(dtype, kN, kK, CopyOfBytes(loaded->packed())).value();
    ExpectSameBits(Multiply(*loaded, x), Multiply(*adopted, x));

    const absl::Span<const char> fewer = loaded->packed().subspan(64);
    EXPECT_TRUE(absl::IsInvalidArgument(
        backend()->AdoptMatrix(dtype, kN, kK, CopyOfBytes(fewer)).status()));
  }
}

// Packed weights lie in files that other versions of this library wrote, on other processors.
TEST_P(AdoptMatrixTest, TheLayoutIsTheOneThatFilesHave) {
  std::mt19937 random(71);  // integers: the same everywhere
  std::string digests;
  for (DType dtype : WeightTypes()) {
    const Buffer blocks = Buffer::AllocateHost(kN * RowBytes(dtype, kK)).value();
    for (char& byte : blocks.chars()) byte = static_cast<char>(random() % 64);  // finite
    const auto w = backend()->LoadMatrix(dtype, kN, kK, blocks).value();
    ASSERT_EQ(w->packed().empty(), !backend()->adopts_matrices());
    absl::StrAppend(&digests, Traits(dtype).name, " ",
                    DigestOf({w->packed().data(), w->packed().size()}).Hex(), "\n");
  }
  if (!backend()->adopts_matrices()) return;
  EXPECT_EQ(DigestOf(digests).Hex(), "e72c5e58b1f17f075fd7b3bc19db245d")
      << "the layout changed: count up kVersion in engine/model/pack_cache.cc, and write this\n"
      << digests;
}

INSTANTIATE_BACKEND_TESTS(AdoptMatrixTest);

}  // namespace
}  // namespace lm
