#include "engine/base/cpu_topology.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "engine/base/cpu_features.h"

namespace lm {
namespace {

using Cpus = std::set<int>;

Cpus UpTo(int count) {
  Cpus cpus;
  for (int cpu = 0; cpu < count; ++cpu) cpus.insert(cpu);
  return cpus;
}

// A system of files made for a test.
class CpuTopologyTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "cpu_topology_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path whole = root_ + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text << "\n";
  }
  void WriteCpu(int cpu, const std::string& file, const std::string& text) const {
    Write(absl::StrCat("/sys/devices/system/cpu/cpu", cpu, "/", file), text);
  }

  std::string root_;
};

TEST(CpuListTest, AreAsTheKernelWritesThem) {
  EXPECT_EQ(ParseCpuList("0"), Cpus{0});
  EXPECT_EQ(ParseCpuList("0-2,8,10-11"), (Cpus{0, 1, 2, 8, 10, 11}));
  EXPECT_EQ(ParseCpuList(""), Cpus{});
  EXPECT_EQ(ParseCpuList("3,x"), Cpus{3});
  EXPECT_EQ(ParseCpuList("0-99999999"), Cpus{});
}

TEST_F(CpuTopologyTest, WhereNothingIsSaidNothingIsLimited) {
  EXPECT_GT(CgroupQuotaCpus(root_), 1000);
  EXPECT_EQ(FastCores(UpTo(8), root_), UpTo(8));
  EXPECT_EQ(FastCores(UpTo(1), root_), UpTo(1));
}

TEST_F(CpuTopologyTest, TheLeastQuotaOnTheWayUpCounts) {
  Write("/proc/self/cgroup", "0::/machine.slice/job.scope");
  Write("/sys/fs/cgroup/machine.slice/job.scope/cpu.max", "max 100000");
  EXPECT_GT(CgroupQuotaCpus(root_), 1000);
  Write("/sys/fs/cgroup/cpu.max", "800000 100000");
  EXPECT_EQ(CgroupQuotaCpus(root_), 8);
  Write("/sys/fs/cgroup/machine.slice/cpu.max", "150000 100000");
  EXPECT_EQ(CgroupQuotaCpus(root_), 2);
  Write("/sys/fs/cgroup/machine.slice/job.scope/cpu.max", "1000 100000");
  EXPECT_EQ(CgroupQuotaCpus(root_), 1);
}

TEST_F(CpuTopologyTest, AGroupOfAnotherNamespaceIsNotFollowed) {
  Write("/proc/self/cgroup", "0::/../../other");
  Write("/sys/fs/cgroup/cpu.max", "400000 100000");
  Write("/sys/fs/other/cpu.max", "100000 100000");
  EXPECT_EQ(CgroupQuotaCpus(root_), 4);
}

TEST_F(CpuTopologyTest, VersionOneHasQuotasToo) {
  Write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,cpuacct:/docker/abc\n0::/");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_GT(CgroupQuotaCpus(root_), 1000);
  Write("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "300000");
  Write("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000");
  EXPECT_EQ(CgroupQuotaCpus(root_), 3);
}

TEST_F(CpuTopologyTest, MemoryIsLimitedLikewise) {
  EXPECT_GT(CgroupMemoryBytes(root_), int64_t{1} << 60);
  Write("/proc/self/cgroup", "7:memory:/docker/abc\n0::/machine.slice/job.scope");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  Write("/sys/fs/cgroup/machine.slice/job.scope/memory.max", "max");
  EXPECT_GT(CgroupMemoryBytes(root_), int64_t{1} << 60);
  Write("/sys/fs/cgroup/machine.slice/memory.max", "3000000000");
  EXPECT_EQ(CgroupMemoryBytes(root_), 3000000000);
  Write("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "157286400");
  EXPECT_EQ(CgroupMemoryBytes(root_), 157286400);
}

TEST_F(CpuTopologyTest, OfIntelsHybridsThePerformanceCoresCount) {
  Write("/sys/devices/cpu_core/cpus", "0-11");
  for (int cpu = 0; cpu < 12; ++cpu) {
    WriteCpu(cpu, "topology/thread_siblings_list", absl::StrCat(cpu & ~1, "-", cpu | 1));
  }
  EXPECT_EQ(FastCores(UpTo(20), root_), (Cpus{0, 2, 4, 6, 8, 10}));
  // The second threads alone are cores all the same; the others alone are better than nothing.
  EXPECT_EQ(FastCores({1, 3, 5, 7, 9}, root_), (Cpus{1, 3, 5, 7, 9}));
  EXPECT_EQ(FastCores({12, 13, 14, 15, 16}, root_), (Cpus{12, 13, 14, 15, 16}));
}

TEST_F(CpuTopologyTest, OfArmsTheBigOnesCount) {
  for (int cpu = 0; cpu < 8; ++cpu) {
    WriteCpu(cpu, "cpu_capacity", cpu < 4 ? "250" : cpu < 7 ? "871" : "1024");
    WriteCpu(cpu, "topology/thread_siblings_list", absl::StrCat(cpu));
  }
  EXPECT_EQ(FastCores(UpTo(8), root_), (Cpus{4, 5, 6, 7}));
  EXPECT_EQ(FastCores(UpTo(4), root_), UpTo(4));
}

TEST_F(CpuTopologyTest, UpToFourAreAllTaken) {
  for (int cpu = 0; cpu < 8; ++cpu) {
    WriteCpu(cpu, "topology/thread_siblings_list", absl::StrCat(cpu & ~1, ",", cpu | 1));
  }
  EXPECT_EQ(FastCores(UpTo(4), root_), UpTo(4));
  EXPECT_EQ(FastCores(UpTo(8), root_), (Cpus{0, 2, 4, 6}));
}

TEST(DefaultThreadsTest, AreNoMoreThanTheCpus) {
  EXPECT_GE(DefaultThreads(), 1);
  EXPECT_LE(DefaultThreads(), AvailableCpus());
}

}  // namespace
}  // namespace lm
