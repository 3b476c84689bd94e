// The CPU backend has the threads it was given, and no library adds others.
#include <filesystem>

#include "tests/engine/backend/backend_fixture.h"

namespace lm {
namespace {

int CountThreads() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    (void)entry;
    ++count;
  }
  return count;
}

TEST(CpuThreadsTest, ManyRowsOfFloatsStartNoThreads) {
  int before = CountThreads();
  for (int threads : {1, 3}) {
    auto backend = CreateBackend({.device = "cpu", .threads = threads}).value();
    Random random(60);
    auto w =
        backend->LoadMatrix(DType::kF32, 192, 300, RandomWeights(DType::kF32, 192, 300, &random))
            .value();
    DeviceMatrix x(backend.get(), random.Normals(300, 300)), out(backend.get(), 300, 192);
    ASSERT_TRUE(backend->MatMul(*w, x.tensor(), {}, out.tensor()).ok());
    EXPECT_EQ(CountThreads(), before + threads - 1);
  }
  EXPECT_EQ(CountThreads(), before);
}

}  // namespace
}  // namespace lm
