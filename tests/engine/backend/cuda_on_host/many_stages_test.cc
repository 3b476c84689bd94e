// Products of many tokens: how many stages a thread block has depends on the device, its bits do
// not.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/match.h"
#include "engine/backend/registry.h"
#include "tests/engine/backend/cuda_on_host/access_counts.h"
#include "tests/engine/backend/cuda_on_host/runtime_counts.h"
#include "tests/engine/backend/cuda_on_host/simulation.h"

namespace lm {
namespace {

// Enough for MultiplyManyKernel, of whose 64 blocks three are run.
constexpr int64_t kRows = 2048, kTokens = 256, kCols = 320;

class ManyStagesTest : public testing::Test {
 protected:
  void TearDown() override {
    on_host::SetMultiprocessorBytes(0);
    on_host::TheSimulation() = {};
  }

  struct Product {
    std::vector<float> out;
    int shared_bytes = 0;  // of a thread block
  };
  static Product MultiplyOn(int64_t multiprocessor_kb) {
    on_host::SetMultiprocessorBytes(multiprocessor_kb << 10);
    on_host::Simulation& simulation = on_host::TheSimulation();
    simulation.most_blocks_of = {{"MultiplyMany", 3}};
    simulation.counts = true;
    const std::unique_ptr<Backend> backend = CreateBackend({.device = "cuda:0"}).value();
    std::mt19937 random(1);
    Buffer blocks = Buffer::AllocateHost(kRows * RowBytes(DType::kQ8_0, kCols)).value();
    constexpr size_t kBlock = 34;  // a scale, then 32 codes
    for (size_t i = 0; i < blocks.bytes(); ++i) {
      blocks.chars()[i] = static_cast<char>(random() % 61);
      if (i % kBlock == 1) blocks.chars()[i] = 0x2c;  // about 2^-4
    }
    std::vector<float> values(kTokens * kCols);
    for (float& value : values) value = static_cast<float>(random() % 1000) / 500 - 1;
    const auto w = backend->LoadMatrix(DType::kQ8_0, kRows, kCols, blocks).value();
    const Buffer x = backend->Allocate(values.size() * sizeof(float)).value();
    const Buffer to = backend->Allocate(kTokens * kRows * sizeof(float)).value();
    Product product;
    product.out.resize(kTokens * kRows);
    EXPECT_TRUE(backend->Upload(values.data(), x.data(), x.bytes()).ok());
    on_host::TakeCounts();
    EXPECT_TRUE(backend
                    ->MatMul(*w, Tensor(x.data(), DType::kF32, kTokens, kCols), {},
                             Tensor(to.data(), DType::kF32, kTokens, kRows))
                    .ok());
    EXPECT_TRUE(backend->Download(to.data(), product.out.data(), to.bytes()).ok());
    for (const on_host::LaunchCounts& launch : on_host::TakeCounts()) {
      if (absl::StartsWith(launch.kernel, "MultiplyManyKernel")) {
        product.shared_bytes = launch.shared_bytes;
      }
    }
    return product;
  }
};

TEST_F(ManyStagesTest, TwoBlocksFitAMultiprocessorOfEitherSize) {
  const int64_t faults = on_host::NumFaults();
  constexpr int64_t kA100 = 164, kH100 = 228, kL40 = 100;  // KB
  const Product on_h100 = MultiplyOn(kH100), on_a100 = MultiplyOn(kA100);
  EXPECT_EQ(on_h100.shared_bytes, 84 << 10);
  EXPECT_EQ(on_a100.shared_bytes, 71 << 10);
  EXPECT_EQ(MultiplyOn(0).shared_bytes, 84 << 10);
  EXPECT_EQ(MultiplyOn(kL40).shared_bytes, 84 << 10);  // one, whatever it has
  EXPECT_EQ(std::memcmp(on_a100.out.data(), on_h100.out.data(), on_h100.out.size() * sizeof(float)),
            0);
  double sum = 0;
  for (const float value : on_h100.out) sum += value * value;
  EXPECT_GT(sum, 0);
  EXPECT_EQ(on_host::NumFaults(), faults);
}

}  // namespace
}  // namespace lm
