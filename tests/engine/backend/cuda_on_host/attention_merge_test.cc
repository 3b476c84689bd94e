// Attention in tiles: the bits of chunks that are merged behind are those of a tile that walks
// through them, however many there are, and whatever lies where nobody looks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "engine/backend/cuda/cuda_device.h"
#include "engine/backend/cuda/kernels.h"
#include "engine/base/float16.h"
#include "tests/engine/backend/cuda_on_host/simulation.h"

namespace lm::cuda {
namespace {

constexpr int64_t kGroup = 2, kDim = 16;

class AttentionMergeTest : public testing::Test {
 protected:
  template <typename T>
  T* Upload(const std::vector<T>& values) {
    buffers_.push_back(device_->Allocate(std::max<size_t>(values.size(), 1) * sizeof(T)).value());
    void* const to = buffers_.back().data();
    EXPECT_TRUE(device_->Upload(values.data(), to, values.size() * sizeof(T)).ok());
    return static_cast<T*>(to);
  }

  // Random values of one KV head, as blocks of keys and values have them. Behind the context values
  // are no numbers: in int8 the scales.
  static std::vector<char> Cache(DType dtype, int32_t context, std::mt19937* random) {
    std::normal_distribution<float> normal;
    std::vector<char> cache;
    auto add = [&cache](auto value) {
      cache.resize(cache.size() + sizeof(value));
      std::memcpy(cache.data() + cache.size() - sizeof(value), &value, sizeof(value));
    };
    for (int32_t part = 0; part < 2 * BlocksFor(context); ++part) {
      for (int64_t i = 0; i < kKvBlockTokens * kDim; ++i) {
        if (dtype == DType::kF16) {
          add(FloatToHalf(2 * normal(*random)));
        } else {
          add(static_cast<int8_t>((*random)()));
        }
      }
      for (int32_t i = 0; dtype == DType::kI8 && i < kKvBlockTokens; ++i) {
        const bool is_there = part / 2 * kKvBlockTokens + i < context;
        add(is_there ? 0.02f * std::abs(normal(*random)) : NAN);
      }
    }
    return cache;
  }

  // Of one token that sees `context` positions, whose first scores are far below the last ones.
  std::vector<float> Attend(DType dtype, int32_t context, bool walks, bool sink) {
    std::mt19937 random(context);
    std::normal_distribution<float> normal;
    auto values = [&](size_t count, float scale) {
      std::vector<float> all(count);
      for (float& value : all) value = scale * normal(random);
      return all;
    };
    const int32_t num_blocks = BlocksFor(context), chunks = (context + kTileChunk - 1) / kTileChunk;
    std::vector<int32_t> blocks;
    for (int32_t b = 0; b < num_blocks; ++b) blocks.push_back(b);
    const std::vector<char> cache = Cache(dtype, context, &random);
    char* const memory = Upload(cache);
    const int64_t part_bytes = static_cast<int64_t>(cache.size()) / num_blocks / 2;
    const KvCacheLayer layer = {memory, memory + part_bytes, dtype, 1, kDim, kDim, 2 * part_bytes};
    const StepRows step = {Upload<Sequence>({{0, 1, context - 1, 0, -1}}), 1, Upload<int32_t>({0})};
    std::vector<AttentionTile> tiles;
    std::vector<AttentionPart> parts;
    if (walks) {
      tiles.push_back({0, 1, 0, 0, 0, chunks, -1});
    } else {
      for (int32_t c = 0; c < chunks; ++c) {
        tiles.push_back({0, 1, 0, 0, c, c + 1, c});
        parts.push_back({c, 0});
      }
    }
    const auto num_parts = static_cast<int32_t>(parts.size());
    const AttentionTiles plan = {Upload<int32_t>({static_cast<int32_t>(tiles.size())}),
                                 Upload(tiles), Upload<int32_t>({0}), Upload(parts),
                                 Upload<int32_t>({0, num_parts})};
    float* const partials =
        Upload(std::vector<float>(AttentionPartialBytes(chunks, layer) / sizeof(float)));
    const float* sinks = sink ? Upload(values(kGroup, 3)) : nullptr;
    const Matrix q = {Upload(values(kGroup * kDim, 1)), 1, kGroup * kDim, kGroup * kDim};
    std::vector<float> result(kGroup * kDim);
    const Matrix out = {Upload(result), 1, kGroup * kDim, kGroup * kDim};
    const AttentionScores scores = {0.5f, {}, 0, nullptr, sinks};
    EXPECT_EQ(AttendTiles(device_->queue(), q, step, plan, static_cast<int64_t>(tiles.size()),
                          !walks, Upload(blocks), layer, scores, partials, out),
              cudaSuccess);
    EXPECT_TRUE(device_->Download(out.data, result.data(), result.size() * sizeof(float)).ok());
    return result;
  }

  std::unique_ptr<CudaDevice> device_ = CudaDevice::Open(RuntimeApi(), 0).value();
  std::vector<Buffer> buffers_;
};

TEST_F(AttentionMergeTest, MergedChunksHaveTheBitsOfATileThatWalks) {
  const int64_t faults = on_host::NumFaults();
  // A thread block merges 32 chunks at a time.
  for (const DType dtype : {DType::kF16, DType::kI8}) {
    for (const int32_t context : {1, 128, 129, 1000, 31 * 128, 32 * 128, 33 * 128 - 5, 9000}) {
      for (const bool sink : {false, true}) {
        const std::vector<float> wanted = Attend(dtype, context, /*walks=*/true, sink);
        const std::vector<float> got = Attend(dtype, context, /*walks=*/false, sink);
        EXPECT_EQ(std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)), 0)
            << Traits(dtype).name << ", " << context << ": " << got[0] << ", " << wanted[0];
        EXPECT_GT(std::abs(wanted[0]), 0);
      }
    }
  }
  EXPECT_EQ(on_host::NumFaults(), faults);
}

}  // namespace
}  // namespace lm::cuda
