// What goes to a device and comes back: all rows of matrices arrive, and no memory of the host is
// written anew, or read, before the device has made its copy (which the simulator sees).
#include "engine/backend/cuda/weight_upload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/backend/cuda/kernels.h"
#include "engine/backend/cuda/loaded_blocks.h"
#include "tests/engine/backend/cuda_on_host/runtime_counts.h"
#include "tests/engine/backend/cuda_on_host/simulation.h"

namespace lm {
namespace {

constexpr int64_t kCols = 512;

class WeightUploadTest : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override { on_host::TakeFaults(); }
  void TearDown() override { EXPECT_THAT(on_host::TakeFaults(), testing::IsEmpty()); }

  std::string RandomRows(int64_t rows) {
    std::string bytes(rows * RowBytes(GetParam(), kCols), 0);
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }

  int64_t RowsOf(const std::string& blocks) {
    return static_cast<int64_t>(blocks.size()) / RowBytes(GetParam(), kCols);
  }

  // Has the rows brought to memory of their own.
  Buffer Bring(const std::string& blocks) {
    const int64_t row_bytes = RowBytes(GetParam(), kCols);
    const int64_t row_on_device = cuda::RowBytesOnDevice(GetParam(), kCols);
    Buffer to = device_->Allocate(RowsOf(blocks) * row_on_device).value();
    int64_t next = 0;
    const absl::Status status = upload_.Bring(
        GetParam(), RowsOf(blocks), kCols,
        [&](int64_t first, int64_t count, char* out) {
          std::memcpy(out, blocks.data() + first * row_bytes, count * row_bytes);
          return absl::OkStatus();
        },
        [&](const void* raw, int64_t first, int64_t count) {
          EXPECT_EQ(first, next);
          next += count;
          return device_->Copy(raw, to.chars().data() + first * row_on_device,
                               count * row_on_device);
        });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(next, RowsOf(blocks));
    return to;
  }

  std::string Arrived(const Buffer& memory) {
    std::string arrived(memory.bytes(), 0);
    EXPECT_TRUE(device_->Download(memory.data(), arrived.data(), arrived.size()).ok());
    return arrived;
  }

  std::string OnDevice(const std::string& blocks) {
    if (!cuda::ChangesOnDevice(GetParam())) return blocks;
    std::string made(RowsOf(blocks) * cuda::RowBytesOnDevice(GetParam(), kCols), 0);
    cuda::WriteBlocksOnDevice(GetParam(), blocks, made.data());
    return made;
  }

  std::mt19937 random_{5};
  std::unique_ptr<CudaDevice> device_ = CudaDevice::Open(RuntimeApi(), 0).value();
  WeightUpload upload_{device_.get(), 5 << 19};  // some pieces of what a thread reads
};

TEST_P(WeightUploadTest, AllRowsArriveWhateverTheSizes) {
  for (const int64_t rows : {1, 1000, 31, 32, 20'000, 33}) {
    const std::string blocks = RandomRows(rows);
    EXPECT_EQ(Arrived(Bring(blocks)), OnDevice(blocks)) << rows << " rows";
    if (rows == 32) upload_.End();  // and begins again
  }
}

TEST_P(WeightUploadTest, AMatrixMayBeOnItsWayWhileTheNextOneIsRead) {
  std::vector<std::string> all;
  std::vector<Buffer> memories;
  for (int64_t rows : {700, 20, 1, 900, 64}) {
    all.push_back(RandomRows(rows));
    memories.push_back(Bring(all.back()));
  }
  upload_.End();
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(Arrived(memories[i]), OnDevice(all[i])) << "matrix " << i;
  }
}

TEST_P(WeightUploadTest, OfSeveralErrorsTheLowestRowsIsGiven) {
  for (int times = 0; times < 5; ++times) {
    int64_t used = 0;
    const absl::Status status = upload_.Bring(
        GetParam(), 20'000, kCols,
        [](int64_t first, int64_t count, char*) {
          const int64_t row = first + count - 1;
          // So that another thread finds its own before.
          if (first <= 5000 && row >= 5000) absl::SleepFor(absl::Milliseconds(20));
          return row < 5000 ? absl::OkStatus() : absl::DataLossError(absl::StrCat("row ", first));
        },
        [&](const void*, int64_t, int64_t count) {
          used += count;
          return absl::OkStatus();
        });
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    const int64_t row = std::stoll(std::string(status.message()).substr(4));
    EXPECT_GE(row, used);
    EXPECT_LE(row, 5000);
  }
  const std::string blocks = RandomRows(300);
  EXPECT_EQ(Arrived(Bring(blocks)), OnDevice(blocks));
}

INSTANTIATE_TEST_SUITE_P(Types, WeightUploadTest,
                         testing::Values(DType::kF32, DType::kQ8_0, DType::kQ4_K, DType::kMXFP4,
                                         DType::kIQ3_S),
                         [](const auto& info) { return std::string(Traits(info.param).name); });

// Of what is staged a half is written anew when the device has copied it, and no sooner is anything
// waited for.
TEST(DeviceCopiesTest, WhatIsStagedArrives) {
  constexpr size_t kBytes = 100'000, kPieces = 100;
  on_host::TakeFaults();
  auto device = CudaDevice::Open(RuntimeApi(), 0).value();
  const Buffer memory = device->Allocate(kBytes * kPieces).value();
  on_host::TakeRuntimeCounts();
  for (size_t i = 0; i < kPieces; ++i) {
    const std::string piece(kBytes, static_cast<char>('a' + i % 26));
    ASSERT_TRUE(device->Stage(piece.data(), memory.chars().data() + i * kBytes, kBytes).ok());
  }
  EXPECT_EQ(on_host::TakeRuntimeCounts().synchronisations, 3);  // of five halves, but for two
  std::string all(kBytes * kPieces, '.');
  ASSERT_TRUE(device->Download(memory.data(), all.data(), all.size()).ok());
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(all[i], static_cast<char>('a' + i / kBytes % 26)) << i;
  }
  EXPECT_THAT(on_host::TakeFaults(), testing::IsEmpty());
}

TEST(DeviceCopiesTest, ADownloadIsThereBehindTheWaitForIt) {
  auto device = CudaDevice::Open(RuntimeApi(), 0).value();
  const Buffer memory = device->Allocate(4).value(), host = device->AllocatePinned(4).value();
  ASSERT_TRUE(device->Upload("text", memory.data(), 4).ok());
  ASSERT_TRUE(device->BeginDownload(memory.data(), host.data(), 4).ok());
  EXPECT_NE(std::string(host.chars().data(), 4), "text");
  // What is put into the queue meanwhile does not change it.
  ASSERT_TRUE(device->Upload("next", memory.data(), 4).ok());
  ASSERT_TRUE(device->AwaitDownload().ok());
  EXPECT_EQ(std::string(host.chars().data(), 4), "text");
}

}  // namespace
}  // namespace lm
