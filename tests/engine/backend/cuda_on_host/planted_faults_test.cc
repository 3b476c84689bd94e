// The simulator finds what is wrong with a kernel, and nothing where nothing is.
#include "tests/engine/backend/cuda_on_host/planted_faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/backend/cuda/cuda_device.h"
#include "tests/engine/backend/cuda_on_host/access_counts.h"
#include "tests/engine/backend/cuda_on_host/device_memory.h"
#include "tests/engine/backend/cuda_on_host/runtime_counts.h"
#include "tests/engine/backend/cuda_on_host/simulation.h"

namespace lm::cuda {
namespace {

using on_host::Fault;
using on_host::FaultKind;
using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

class PlantedFaultsTest : public testing::Test {
 protected:
  void SetUp() override {
    device_ = CudaDevice::Open(RuntimeApi(), 0).value();
    on_host::TakeFaults();
    inputs_.resize(kPlantedInputs);
    for (int i = 0; i < kPlantedInputs; ++i) inputs_[i] = static_cast<float>(i);
  }
  void TearDown() override { on_host::the_simulation = {}; }

  // Runs a kernel with `from` of `inputs` values, `times` times. What it leaves is in outputs_.
  std::vector<Fault> Run(Planted planted, bool fault, int inputs = kPlantedInputs, int times = 1) {
    Buffer from = device_->Allocate(inputs * sizeof(float)).value();
    Buffer to = device_->Allocate(outputs_.size() * sizeof(float)).value();
    EXPECT_TRUE(device_->Upload(inputs_.data(), from.data(), from.bytes()).ok());
    const on_host::KeepFaults keep;
    for (int i = 0; i < times; ++i) {
      EXPECT_EQ(LaunchPlanted(device_->queue(), planted, fault, static_cast<float*>(from.data()),
                              static_cast<float*>(to.data())),
                cudaSuccess);
    }
    launched_ = device_->Flush();
    EXPECT_TRUE(device_->Download(to.data(), outputs_.data(), to.bytes()).ok());
    return on_host::TakeFaults();
  }

  on_host::LaunchCounts Count(Planted planted, bool fault) {
    on_host::TakeCounts();
    on_host::the_simulation.counts = true;
    EXPECT_THAT(Run(planted, fault), IsEmpty());
    on_host::the_simulation.counts = false;
    std::vector<on_host::LaunchCounts> counts = on_host::TakeCounts();
    EXPECT_EQ(counts.size(), 1u);
    return counts[0];
  }

  // Nothing is wrong with the kernel; with the fault there is one of this kind, in this kernel, of
  // which the message has these words and the file.
  void ExpectFound(Planted planted, FaultKind kind, const std::string& kernel,
                   const std::string& words, int inputs = kPlantedInputs) {
    EXPECT_THAT(Run(planted, false, inputs), IsEmpty());
    EXPECT_TRUE(launched_.ok()) << launched_;
    const std::vector<Fault> faults = Run(planted, true, inputs);
    ASSERT_FALSE(faults.empty());
    EXPECT_FALSE(launched_.ok());
    EXPECT_EQ(faults[0].kind, kind) << faults[0].Text();
    EXPECT_EQ(faults[0].kernel, kernel + "<true>");
    EXPECT_THAT(faults[0].what, HasSubstr(words));
    const bool has_place = kind != FaultKind::kMissingLanes && kind != FaultKind::kWaitsForEver;
    if (has_place) {
      EXPECT_THAT(faults[0].Text(), HasSubstr("; at planted_faults.cu:"));
    }
  }

  // The same of kernels in a graph, which may begin before the ones before have ended. (The first
  // time such a list comes its kernels are launched one by one.)
  void ExpectFoundInGraph(Planted planted, const std::string& words) {
    constexpr int kKernels = 8;
    auto run = [&](bool fault) { return Run(planted, fault, kPlantedInputs, kKernels); };
    for (const bool fault : {false, true}) {
      EXPECT_THAT(run(fault), IsEmpty());
      EXPECT_TRUE(launched_.ok()) << launched_;
      const std::vector<Fault> faults = run(fault);
      ASSERT_EQ(faults.empty(), !fault);
      if (!fault) continue;
      EXPECT_EQ(faults[0].kind, FaultKind::kTooEarly) << faults[0].Text();
      EXPECT_THAT(faults[0].what, HasSubstr(words));
      EXPECT_FALSE(launched_.ok());
    }
  }

  std::unique_ptr<CudaDevice> device_;
  std::vector<float> inputs_;
  std::vector<float> outputs_ = std::vector<float>(1024);
  absl::Status launched_;
};

TEST_F(PlantedFaultsTest, AMissingBarrierOfTheBlockIsARace) {
  ExpectFound(Planted::kReverse, FaultKind::kRace, "ReverseKernel", " shared memory values + ");
  EXPECT_EQ(Run(Planted::kReverse, false).size(), 0u);
  EXPECT_EQ(outputs_[0], 63);
}

TEST_F(PlantedFaultsTest, AMissingBarrierOfTheWarpIsARace) {
  ExpectFound(Planted::kReverseWarps, FaultKind::kRace, "ReverseWarpsKernel",
              " shared memory values + ");
}

TEST_F(PlantedFaultsTest, WritingWhatOthersMayStillReadIsARace) {
  ExpectFound(Planted::kRounds, FaultKind::kRace, "RoundsKernel", " shared memory sums + ");
}

TEST_F(PlantedFaultsTest, BlocksThatWriteTheSamePlaceAreARace) {
  ExpectFound(
      Planted::kHalves, FaultKind::kRace, "HalvesKernel",
      "thread 31 of block (1, 0) writes an allocation of 4096 bytes + 124, which thread 31 of "
      "another block has used");
}

TEST_F(PlantedFaultsTest, AWrongFragmentGivesOtherNumbersThanTheReference) {
  auto* bytes = reinterpret_cast<int8_t*>(inputs_.data());
  for (int i = 0; i < 16 * 32 + 32 * 8; ++i) bytes[i] = static_cast<int8_t>(i * 37 % 251 - 125);
  int32_t wanted[16 * 8] = {};
  for (int row = 0; row < 16; ++row) {
    for (int col = 0; col < 8; ++col) {
      for (int k = 0; k < 32; ++k) {
        wanted[row * 8 + col] += bytes[row * 32 + k] * bytes[512 + col * 32 + k];
      }
    }
  }
  EXPECT_THAT(Run(Planted::kFragments, false), IsEmpty());
  EXPECT_EQ(std::memcmp(outputs_.data(), wanted, sizeof(wanted)), 0);
  EXPECT_THAT(Run(Planted::kFragments, true), IsEmpty());  // each access by itself is right
  EXPECT_NE(std::memcmp(outputs_.data(), wanted, sizeof(wanted)), 0);
}

TEST_F(PlantedFaultsTest, AnUnwaitedCopyIsFoundAndReadsGarbage) {
  ExpectFound(
      Planted::kCopies, FaultKind::kUnwaitedCopy, "CopiesKernel",
      "thread 0 of block (0, 0) reads shared memory (dynamic) + 0, where a copy of thread 0 "
      "is not waited for");
  EXPECT_NE(outputs_[1], 1);
  EXPECT_THAT(Run(Planted::kCopies, false), IsEmpty());
  EXPECT_EQ(outputs_[1], 1);
}

TEST_F(PlantedFaultsTest, ACopyOfAnotherThreadNeedsABarrierToo) {
  EXPECT_THAT(Run(Planted::kOthersCopies, false), IsEmpty());
  const std::vector<Fault> faults = Run(Planted::kOthersCopies, true);
  ASSERT_FALSE(faults.empty());
  EXPECT_TRUE(faults[0].kind == FaultKind::kUnwaitedCopy || faults[0].kind == FaultKind::kRace);
}

TEST_F(PlantedFaultsTest, PinnedMemoryThatChangesBeforeItsCopyIsWaitedForIsFound) {
  const on_host::KeepFaults keep;
  Buffer pinned = device_->AllocatePinned(256).value();
  Buffer to = device_->Allocate(256).value();
  for (const bool waits : {true, false}) {
    std::memset(pinned.data(), 1, 256);
    ASSERT_TRUE(device_->Send(pinned.chars().data() + 64, to.data(), 100).ok());
    pinned.chars()[164] = 2;  // behind what is copied
    if (waits) {
      ASSERT_TRUE(device_->Synchronize().ok());
    }
    pinned.chars()[163] = 2;
    ASSERT_TRUE(device_->Synchronize().ok());
    const std::vector<Fault> faults = on_host::TakeFaults();
    ASSERT_EQ(faults.size(), waits ? 0u : 1u);
    if (!waits) {
      EXPECT_EQ(faults[0].Text(),
                "changed while it is copied in a copy to the device: 100 bytes of the host");
    }
  }
}

TEST_F(PlantedFaultsTest, ReadsBehindTheEndOfAnAllocationAreFound) {
  ExpectFound(
      Planted::kNeighbours, FaultKind::kOutOfBounds, "NeighboursKernel",
      "thread 63 of block (0, 0) reads 4 bytes at 0 bytes behind an allocation of 256 bytes", 64);
}

TEST_F(PlantedFaultsTest, ReadsBehindTheEndOfSharedMemoryAreFound) {
  ExpectFound(Planted::kSharedNeighbours, FaultKind::kOutOfBounds, "SharedNeighboursKernel",
              "thread 63 of block (0, 0) reads 4 bytes at 256 bytes behind the start of shared "
              "memory values, which has 256");
}

TEST_F(PlantedFaultsTest, WritesBehindTheEndOfDynamicSharedMemoryAreFound) {
  ExpectFound(Planted::kDynamicNeighbours, FaultKind::kOutOfBounds, "DynamicNeighboursKernel",
              "thread 63 of block (0, 0) writes 4 bytes at 256 bytes behind the start of shared "
              "memory (dynamic), which has 256");
}

TEST_F(PlantedFaultsTest, AMisalignedAddressIsFound) {
  ExpectFound(Planted::kPairs, FaultKind::kMisaligned, "PairsKernel", "thread 0 of block (0, 0)");
}

TEST_F(PlantedFaultsTest, AShuffleWithoutAllLanesIsFound) {
  ExpectFound(Planted::kHalfWarp, FaultKind::kMissingLanes, "HalfWarpKernel",
              "shfl of a whole warp, of which there are 16 lanes");
}

TEST_F(PlantedFaultsTest, LanesAtDifferentBarriersAreFound) {
  ExpectFound(Planted::kBarriers, FaultKind::kWaitsForEver, "BarriersKernel",
              "waits at __syncwarp, others of its warp elsewhere");
}

TEST_F(PlantedFaultsTest, AReadOfWhatAKernelBeforeMayStillWriteIsFound) {
  ExpectFoundInGraph(
      Planted::kReadsBefore,
      "thread 0 of block (0, 0) reads an allocation of 4096 bytes + 0, which a kernel "
      "before may still be writing");
}

TEST_F(PlantedFaultsTest, AStoreBeforeTheKernelBeforeHasEndedIsFound) {
  ExpectFoundInGraph(Planted::kStoresBefore,
                     "writes an allocation of 4096 bytes + 256 before it has waited");
}

TEST_F(PlantedFaultsTest, ABlockThatWaitsForNobodyIsFound) {
  ExpectFoundInGraph(Planted::kNeverWaits, "of block (1, 0), and all others, have not waited");
}

TEST_F(PlantedFaultsTest, ConflictsOfBanksAreCounted) {
  const on_host::LaunchCounts right = Count(Planted::kTranspose, false);
  EXPECT_EQ(right.kernel, "TransposeKernel<false>");
  EXPECT_EQ(right.shared.requests, 64);
  EXPECT_EQ(right.shared.wavefronts, 64);
  const on_host::LaunchCounts wrong = Count(Planted::kTranspose, true);
  EXPECT_EQ(wrong.kernel, "TransposeKernel<true>");
  EXPECT_EQ(wrong.shared.requests, 64);
  EXPECT_EQ(wrong.shared.least_wavefronts, 64);
  EXPECT_EQ(wrong.shared.wavefronts, 32 + 32 * 32);  // writes of rows, reads of columns
}

TEST_F(PlantedFaultsTest, UncoalescedLoadsAreCounted) {
  const on_host::LaunchCounts right = Count(Planted::kSums, false);
  EXPECT_EQ(right.loads.requests, 32);
  EXPECT_EQ(right.loads.sectors, 32 * 4);
  EXPECT_EQ(right.loads.efficiency(), 1.0);
  EXPECT_EQ(right.dram_bytes, 32 * 32 * 4 + 32 * 4);
  const on_host::LaunchCounts wrong = Count(Planted::kSums, true);
  EXPECT_EQ(wrong.loads.requests, 32);
  EXPECT_EQ(wrong.loads.sectors, 32 * 32);
  EXPECT_EQ(wrong.loads.efficiency(), 1.0 / 8);
  EXPECT_EQ(wrong.dram_bytes, right.dram_bytes);  // each sector comes once
}

TEST_F(PlantedFaultsTest, TensorCoresWorkIsCounted) {
  const on_host::LaunchCounts counts = Count(Planted::kFragments, false);
  EXPECT_EQ(counts.mma_instructions, 1);
  EXPECT_EQ(counts.mma_int8, 16 * 8 * 32);
  EXPECT_EQ(counts.mma_16, 0);
}

TEST_F(PlantedFaultsTest, WhatTheHostAsksForIsCounted) {
  on_host::TakeRuntimeCounts();
  Run(Planted::kReverse, false);
  const on_host::RuntimeCounts counts = on_host::TakeRuntimeCounts();
  EXPECT_EQ(counts.kernels, 1);
  EXPECT_EQ(counts.launches, 1);
  EXPECT_EQ(counts.graph_launches, 0);
  EXPECT_EQ(counts.bytes_to_device, kPlantedInputs * 4);
  EXPECT_EQ(counts.bytes_to_host, 4096);
  EXPECT_GE(counts.synchronisations, 1);
}

// A launch of which some blocks are run counts as all.
TEST_F(PlantedFaultsTest, CountsOfSomeBlocksAreScaledToAll) {
  const double all = Count(Planted::kHalves, false).stores.sectors;
  on_host::the_simulation.most_blocks = 1;
  EXPECT_EQ(Count(Planted::kHalves, false).stores.sectors, all);
  EXPECT_EQ(all, 2 * 4);
}

// A kernel writes its own device's memory only, and reads another's where it has been let.
TEST_F(PlantedFaultsTest, AnotherDevicesMemory) {
  const auto other = CudaDevice::Open(RuntimeApi(), 1).value();
  const Buffer own = device_->Allocate(kPlantedInputs * sizeof(float)).value();
  const Buffer others = other->Allocate(kPlantedInputs * sizeof(float)).value();
  auto run = [this](const Buffer& from, const Buffer& to) {
    const on_host::KeepFaults keep;
    EXPECT_EQ(LaunchPlanted(device_->queue(), Planted::kReverse, false,
                            static_cast<float*>(from.data()), static_cast<float*>(to.data())),
              cudaSuccess);
    launched_ = device_->Flush();
    return on_host::TakeFaults();
  };
  EXPECT_THAT(run(own, own), IsEmpty());
  EXPECT_TRUE(launched_.ok()) << launched_;
  for (const bool writes : {false, true}) {
    const std::vector<Fault> faults = writes ? run(own, others) : run(others, own);
    ASSERT_FALSE(faults.empty());
    EXPECT_FALSE(launched_.ok());
    EXPECT_EQ(faults[0].kind, FaultKind::kOtherDevice) << faults[0].Text();
    EXPECT_THAT(faults[0].what, HasSubstr(writes ? " writes " : " reads "));
    EXPECT_THAT(faults[0].what, HasSubstr(" of device 1, and is one of device 0"));
  }
  on_host::LetRead(0, 1);
  EXPECT_THAT(run(others, own), IsEmpty());
  EXPECT_THAT(run(own, others), testing::Not(IsEmpty()));
}

}  // namespace
}  // namespace lm::cuda
