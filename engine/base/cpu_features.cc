#include "engine/base/cpu_features.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/cpu_topology.h"
#include "engine/base/printable.h"
#include "engine/base/processor.h"

namespace lm {
namespace {

// The CPUs that the process's affinity mask allows; one where the system does not tell.
std::set<int> AllowedCpus() {
  std::set<int> cpus;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &mask)) cpus.insert(cpu);
    }
  }
  if (cpus.empty()) cpus.insert(0);
  return cpus;
}

const absl::StatusOr<std::vector<Isa>>& NamedIsas() {
  static const auto& isas = *new absl::StatusOr<std::vector<Isa>>([] {
    const char* name = std::getenv("LM_CPU");
    return IsasUpTo(name == nullptr ? "" : name, DetectIsas());
  }());
  return isas;
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
  static const auto& isas = *new std::vector<Isa>(NamedIsas().ok() ? *NamedIsas() : DetectIsas());
  return isas;
}

const absl::Status& CheckNamedIsa() { return NamedIsas().status(); }

absl::StatusOr<std::vector<Isa>> IsasUpTo(absl::string_view name, std::vector<Isa> isas) {
  if (name.empty()) return isas;
  const auto named =
      std::find_if(isas.begin(), isas.end(), [name](Isa isa) { return IsaName(isa) == name; });
  if (named != isas.end()) {
    isas.erase(named + 1, isas.end());
    return isas;
  }
  const auto list = [](std::string* out, Isa isa) { absl::StrAppend(out, IsaName(isa)); };
  return absl::InvalidArgumentError(
      absl::StrCat("LM_CPU must be one of ", absl::StrJoin(isas, ", ", list),
                   ", which this processor has, got '", Printable(name), "'"));
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

int64_t AvailableMemoryBytes() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGE_SIZE);
  const int64_t physical = pages > 0 && page_bytes > 0 ? pages * page_bytes : 0;
  return std::min(physical, CgroupMemoryBytes());
}

int AvailableCpus() { return std::min(static_cast<int>(AllowedCpus().size()), CgroupQuotaCpus()); }

int DefaultThreads() {
  return std::min(static_cast<int>(FastCores(AllowedCpus()).size()), CgroupQuotaCpus());
}

}  // namespace lm
