#include "engine/base/cpu_topology.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lm {
namespace {

constexpr int kUnlimited = 1 << 20;
constexpr int64_t kUnlimitedBytes = int64_t{1} << 62;
constexpr int kMostCpus = 1 << 16;

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int CpusOf(double quota, double period) {
  if (!(quota > 0) || !(period > 0)) return kUnlimited;
  return static_cast<int>(std::clamp(std::ceil(quota / period), 1.0, double{kUnlimited}));
}

// cpu.max: "150000 100000" or "max 100000".
int QuotaOfVersion2(const std::string& folder) {
  const std::vector<std::string> words = absl::StrSplit(FirstLine(folder + "/cpu.max"), ' ');
  double quota = 0, period = 0;
  const bool limited = words.size() == 2 && absl::SimpleAtod(words[0], &quota) &&
                       absl::SimpleAtod(words[1], &period);
  return limited ? CpusOf(quota, period) : kUnlimited;
}

int QuotaOfVersion1(const std::string& folder) {
  double quota = 0, period = 0;
  const bool limited = absl::SimpleAtod(FirstLine(folder + "/cpu.cfs_quota_us"), &quota) &&
                       absl::SimpleAtod(FirstLine(folder + "/cpu.cfs_period_us"), &period);
  return limited ? CpusOf(quota, period) : kUnlimited;
}

// memory.max, or memory.limit_in_bytes: bytes, or "max"; version 1 has a great number for that.
int64_t LimitIn(const std::string& file) {
  int64_t bytes = 0;
  const bool limited = absl::SimpleAtoi(FirstLine(file), &bytes) && bytes > 0;
  return limited ? std::min(bytes, kUnlimitedBytes) : kUnlimitedBytes;
}
int64_t LimitOfVersion2(const std::string& folder) { return LimitIn(folder + "/memory.max"); }
int64_t LimitOfVersion1(const std::string& folder) {
  return LimitIn(folder + "/memory.limit_in_bytes");
}

// The least quota of a group and those above it.
template <typename F>
auto LeastQuota(const std::string& mount, absl::string_view group, F quota_of) {
  auto least = quota_of(mount);
  std::string folder = mount;
  for (const absl::string_view name : absl::StrSplit(group, '/', absl::SkipEmpty())) {
    if (name == "..") break;  // of another namespace
    absl::StrAppend(&folder, "/", name);
    least = std::min(least, quota_of(folder));
  }
  return least;
}

// Of the process's group and those above it, the least that either version says.
template <typename F, typename G>
auto OfCgroup(const std::string& root, absl::string_view controller, F of_version2, G of_version1) {
  const std::string mount = root + "/sys/fs/cgroup";
  std::string group2 = "/", group1 = "/";
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "0::/a/b", or "4:cpu,cpuacct:/a/b".
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    if (parts[0] == "0" && parts[1].empty()) group2 = parts[2];
    for (const absl::string_view name : absl::StrSplit(parts[1], ',')) {
      if (name == controller) group1 = parts[2];
    }
  }
  return std::min(LeastQuota(mount, group2, of_version2),
                  LeastQuota(absl::StrCat(mount, "/", controller), group1, of_version1));
}

// Those with at least half of the greatest capacity, where the system tells.
std::set<int> BigOnes(const std::set<int>& cpus, const std::string& folder) {
  std::map<int, int> capacities;
  int greatest = 0;
  for (const int cpu : cpus) {
    int capacity = 0;
    const std::string path = absl::StrCat(folder, "/cpu", cpu, "/cpu_capacity");
    if (!absl::SimpleAtoi(FirstLine(path), &capacity)) return cpus;
    capacities[cpu] = capacity;
    greatest = std::max(greatest, capacity);
  }
  std::set<int> big;
  for (const auto& [cpu, capacity] : capacities) {
    if (2 * capacity >= greatest) big.insert(cpu);
  }
  return big;
}

}  // namespace

std::set<int> ParseCpuList(absl::string_view list) {
  std::set<int> cpus;
  for (const absl::string_view range : absl::StrSplit(list, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(range, absl::MaxSplits('-', 1));
    int first = 0, last = 0;
    if (!absl::SimpleAtoi(ends.first, &first)) break;
    last = first;
    if (!ends.second.empty() && !absl::SimpleAtoi(ends.second, &last)) break;
    if (first < 0 || last >= kMostCpus) break;
    for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
  }
  return cpus;
}

int CgroupQuotaCpus(const std::string& root) {
  return OfCgroup(root, "cpu", QuotaOfVersion2, QuotaOfVersion1);
}

int64_t CgroupMemoryBytes(const std::string& root) {
  return OfCgroup(root, "memory", LimitOfVersion2, LimitOfVersion1);
}

std::set<int> FastCores(const std::set<int>& cpus, const std::string& root) {
  const std::string devices = root + "/sys/devices";
  std::set<int> fast;
  const std::set<int> performance = ParseCpuList(FirstLine(devices + "/cpu_core/cpus"));
  std::set_intersection(cpus.begin(), cpus.end(), performance.begin(), performance.end(),
                        std::inserter(fast, fast.end()));
  const std::string folder = devices + "/system/cpu";
  fast = BigOnes(fast.empty() ? cpus : fast, folder);
  constexpr size_t kFew = 4;
  if (fast.size() <= kFew) return fast;
  std::set<int> cores;
  for (const int cpu : fast) {
    const std::set<int> threads = ParseCpuList(
        FirstLine(absl::StrCat(folder, "/cpu", cpu, "/topology/thread_siblings_list")));
    const bool taken = std::any_of(threads.begin(), threads.end(),
                                   [&cores](int thread) { return cores.contains(thread); });
    if (!taken) cores.insert(cpu);
  }
  return cores;
}

}  // namespace lm
