#include "engine/base/cpu_features.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "engine/base/processor.h"

namespace lm {
namespace {

// CPUs that the cgroup's quota amounts to, rounded up; a large number where there is none.
int CgroupQuotaCpus() {
  constexpr int kUnlimited = 1 << 20;
  std::string quota;
  double period = 0;
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  if (v2 >> quota >> period && quota != "max" && period > 0) {
    return std::max(1, static_cast<int>(std::ceil(std::atof(quota.c_str()) / period)));
  }
  std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double microseconds = 0;
  if (v1_quota >> microseconds && v1_period >> period && microseconds > 0 && period > 0) {
    return std::max(1, static_cast<int>(std::ceil(microseconds / period)));
  }
  return kUnlimited;
}

}  // namespace

absl::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvxVnni:
      return "avx_vnni";
    case Isa::kAvx512Vnni:
      return "avx512_vnni";
    case Isa::kNeon:
      return "neon";
    case Isa::kNeonDotprod:
      return "neon_dotprod";
    case Isa::kNeonI8mm:
      return "neon_i8mm";
  }
  return "portable";
}

const std::vector<Isa>& AvailableIsas() {
  static const auto& isas = *new std::vector<Isa>([] {
    const char* wanted = std::getenv("LM_CPU");
    return IsasUpTo(wanted == nullptr ? "" : wanted, DetectIsas());
  }());
  return isas;
}

std::vector<Isa> IsasUpTo(absl::string_view name, std::vector<Isa> isas) {
  const auto named =
      std::find_if(isas.begin(), isas.end(), [name](Isa isa) { return IsaName(isa) == name; });
  if (named != isas.end()) isas.erase(named + 1, isas.end());
  return isas;
}

std::string CpuName() {
  constexpr absl::string_view kKey = "model name";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (absl::StartsWith(line, kKey) && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "";
}

int64_t PhysicalMemoryBytes() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && page_bytes > 0 ? pages * page_bytes : 0;
}

int AvailableCpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  int cpus = sched_getaffinity(0, sizeof(mask), &mask) == 0 ? CPU_COUNT(&mask) : 1;
  return std::max(1, std::min(cpus, CgroupQuotaCpus()));
}

}  // namespace lm
