#include "tests/engine/backend/cuda_on_host/simulation.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "tests/engine/backend/cuda_on_host/kernel_symbols.h"

namespace lm::on_host {

Simulation the_simulation;

namespace {

std::vector<Fault> faults;
int64_t num_faults = 0;
bool quiet = false;

const char* NameOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kRace:
      return "race";
    case FaultKind::kUnwaitedCopy:
      return "unwaited copy";
    case FaultKind::kOutOfBounds:
      return "out of bounds";
    case FaultKind::kMisaligned:
      return "misaligned";
    case FaultKind::kMissingLanes:
      return "missing lanes";
    case FaultKind::kWaitsForEver:
      return "waits for ever";
    case FaultKind::kTooEarly:
      return "too early";
    case FaultKind::kOtherDevice:
      return "another device's";
    case FaultKind::kChangedHost:
      return "changed while it is copied";
  }
  return "fault";
}

}  // namespace

std::string Fault::Text() const {
  return std::string(NameOf(kind)) + " in " + kernel + ": " + what +
         (where.empty() ? "" : "; at " + where);
}

std::vector<Fault> TakeFaults() { return std::exchange(faults, {}); }

int64_t NumFaults() { return num_faults; }

void Report(FaultKind kind, const std::string& kernel, const std::string& what, const void* place) {
  ++num_faults;
  faults.push_back({kind, kernel, what, place == nullptr ? "" : LineOf(place)});
  if (!quiet) std::fprintf(stderr, "%s\n", faults.back().Text().c_str());
}

KeepFaults::KeepFaults() { quiet = true; }
KeepFaults::~KeepFaults() { quiet = false; }

}  // namespace lm::on_host
