// What the system says about its CPUs, and how much of them and of its memory a process may have.
// Every path is below `root`, which is empty but in tests; a file that is not there says nothing.
#ifndef LM_ENGINE_BASE_CPU_TOPOLOGY_H_
#define LM_ENGINE_BASE_CPU_TOPOLOGY_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/string_view.h"

namespace lm {

// "0-3,8" as the kernel writes it; what is not of that form ends it.
std::set<int> ParseCpuList(absl::string_view list);

// CPUs that the quotas of the process's cgroup and of all above it amount to, rounded up; a large
// number where there is none. Version 1 and 2.
int CgroupQuotaCpus(const std::string& root = "");

// Bytes that the process's cgroup and all above it may hold in memory, likewise.
int64_t CgroupMemoryBytes(const std::string& root = "");

// Of these CPUs one of each core that computes fast: of Intel's hybrids the performance cores, of
// ARM's those with at least half of the greatest capacity. The second thread of a core adds little
// to a loop that waits for memory or keeps the multipliers busy; but up to four CPUs are all taken:
// so few are mostly a virtual machine's, whose host has others use what is left idle. Never empty
// where `cpus` is not.
std::set<int> FastCores(const std::set<int>& cpus, const std::string& root = "");

}  // namespace lm

#endif  // LM_ENGINE_BASE_CPU_TOPOLOGY_H_
