// Loads and stores of kernels. Kernels are compiled with -fsanitize=thread, so that the compiler
// puts a call before each of them; the functions that it calls are these, not the sanitizer's.
#include "tests/engine/backend/cuda_on_host/accesses.h"

#include <algorithm>
#include <string>

#include "tests/engine/backend/cuda_on_host/access_counts.h"
#include "tests/engine/backend/cuda_on_host/kernel_symbols.h"
#include "tests/engine/backend/cuda_on_host/run_grid.h"

namespace lm::on_host {

thread_local Running* running = nullptr;

namespace {

constexpr int kCopyBytes = 16;

std::string Bytes(int bytes) { return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes"); }

std::string Verb(AccessKind kind) { return kind == AccessKind::kRead ? " reads " : " writes "; }

// What an address is, as a kernel's author calls it.
std::string NameOf(const Region& region, uintptr_t address) {
  return (region.shared ? "shared memory " : "") + region.name + " + " +
         std::to_string(address - region.begin);
}

// The memory that has the first byte, or null.
Region* Find(const void* place, uintptr_t address) {
  struct Known {
    const void* place = nullptr;
    Region* region = nullptr;
    uint32_t launch = 0;
  };
  static Known known[1024];
  Known& slot = known[(reinterpret_cast<uintptr_t>(place) >> 1) % 1024];
  if (slot.place == place && slot.launch == running->by.first_run && slot.region != nullptr &&
      address >= slot.region->begin && address < slot.region->end) {
    return slot.region;
  }
  Region* found = nullptr;
  for (Region* region : running->shared) {
    if (address >= region->begin && address < region->end) found = region;
  }
  if (found == nullptr) found = AllocationOf(address);
  slot = {place, found, running->by.first_run};
  return found;
}

// Says that [address, address + bytes) is not in one place. (What complains stays out of the way of
// what does not, which is called before every access.)
[[gnu::cold]] void ComplainOfBounds(const void* place, uintptr_t address, int bytes,
                                    AccessKind kind) {
  const Region* nearest = nullptr;  // the shared variable that ends before
  for (const Region* region : running->shared) {
    if (region->begin > address) continue;
    if (nearest == nullptr || region->end > nearest->end) nearest = region;
  }
  std::string what = Describe(address);
  if (IsVariable(address) || (nearest != nullptr && nearest->name == "(dynamic)" &&
                              address < nearest->end + (size_t{227} << 10))) {
    what = nearest == nullptr
               ? "a variable of the host"
               : std::to_string(address - nearest->begin) + " bytes behind the start of" +
                     " shared memory " + nearest->name + ", which has " +
                     std::to_string(nearest->end - nearest->begin);
  }
  Complain(FaultKind::kOutOfBounds, WhoseTurn() + Verb(kind) + Bytes(bytes) + " at " + what, place);
}

[[gnu::cold]] void ComplainOfCopy(const void* place, uintptr_t at, AccessKind kind,
                                  const Region& region, int owner) {
  Complain(FaultKind::kUnwaitedCopy,
           WhoseTurn() + Verb(kind) + NameOf(region, at) + ", where a copy of thread " +
               std::to_string(owner) + " is not waited for",
           place);
}

[[gnu::cold]] void ComplainOfRace(const void* place, uintptr_t at, AccessKind kind,
                                  const Region& region, const Stamp& other) {
  const bool same_block = other.run() == running->by.run;
  Complain(FaultKind::kRace,
           WhoseTurn() + Verb(kind) + NameOf(region, at) + ", which thread " +
               std::to_string(other.thread()) +
               (same_block ? " of the block" : " of another block") +
               " has used without a barrier between",
           place);
}

void Check(const void* place, uintptr_t address, int bytes, AccessKind kind, Region* region) {
  Accessor by = running->by;
  if (region->shared) by.first_run = by.run;  // each block has its own
  const uintptr_t end = address + bytes;
  auto check = [&](uintptr_t at, uint32_t mask) {
    if (region->shared) {
      const uint16_t owner = region->copying[at / 4 - region->begin / 4];
      if (owner != 0) ComplainOfCopy(place, at, kind, *region, owner - 1);
    }
    const Stamp other = NoteAccess(by, kind, mask, region->word(at));
    if (other.is_somebody()) ComplainOfRace(place, at, kind, *region, other);
  };
  if ((address | static_cast<uintptr_t>(bytes)) % 4 == 0) {
    for (uintptr_t at = address; at < end; at += 4) check(at, 15);
    return;
  }
  for (uintptr_t at = address; at < end; at = at / 4 * 4 + 4) {
    const uintptr_t part = std::min(end - at, 4 - at % 4);
    check(at, ((1u << part) - 1) << (at % 4));
  }
}

[[gnu::cold]] void ComplainOfAlignment(const void* place, uintptr_t address, int bytes,
                                       AccessKind kind, const Region& region) {
  Complain(FaultKind::kMisaligned,
           WhoseTurn() + Verb(kind) + Bytes(bytes) + " at " + NameOf(region, address), place);
}

[[gnu::cold]] void ComplainOfDevice(const void* place, uintptr_t address, AccessKind kind,
                                    const Region& region) {
  Complain(FaultKind::kOtherDevice,
           WhoseTurn() + Verb(kind) + NameOf(region, address) + " of device " +
               std::to_string(region.device) + ", and is one of device " +
               std::to_string(running->device),
           place);
}

// For accesses to global memory by who has not waited for the kernels before.
[[gnu::noinline]] void CheckOrder(const void* place, uintptr_t address, int bytes, AccessKind kind,
                                  const Region& region) {
  auto what = [&] { return WhoseTurn() + Verb(kind) + NameOf(region, address); };
  if (kind != AccessKind::kRead) {
    return Complain(FaultKind::kTooEarly, what() + " before it has waited for the kernel before",
                    place);
  }
  for (uintptr_t at = address; at < address + bytes; at += 4) {
    const Stamp write = region.word(at)->write;
    if (!write.is_somebody() || write.run() < running->first_unordered) continue;
    return Complain(FaultKind::kTooEarly,
                    what() + ", which a kernel before may still be writing: it has not waited",
                    place);
  }
}

}  // namespace

std::string WhoseTurn() {
  return "thread " + std::to_string(running->by.thread) + " of block (" +
         std::to_string(running->block.x) + ", " + std::to_string(running->block.y) + ")";
}

void Complain(FaultKind kind, const std::string& what, const void* place) {
  if (!running->reported.insert({place, kind}).second) return;
  Report(kind, running->kernel, what, place);
}

void See(const void* place, const void* data, int bytes, AccessKind kind, bool aligned) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  if (address >= running->stack_begin && address < running->stack_end) return;  // the thread's own
  if (address - reinterpret_cast<uintptr_t>(&indices) < sizeof(indices)) return;
  Region* const region = Find(place, address);
  const Simulation& simulation = TheSimulation();
  if (region == nullptr) {
    if (simulation.checks) ComplainOfBounds(place, address, bytes, kind);
    return;
  }
  if (simulation.checks) {
    if (address + bytes > region->end) return ComplainOfBounds(place, address, bytes, kind);
    if (aligned && (address & (static_cast<uintptr_t>(bytes) - 1)) != 0) {  // a power of two
      ComplainOfAlignment(place, address, bytes, kind, *region);
    }
    if (running->begins_early && !running->has_waited && !region->shared) {
      CheckOrder(place, address, bytes, kind, *region);
    }
    if (!region->shared && running->device != region->device &&
        (kind != AccessKind::kRead || !MayRead(running->device, region->device))) {
      ComplainOfDevice(place, address, kind, *region);
    }
    Check(place, address, bytes, kind, region);
  }
  if (simulation.counts) {
    const AccessWay way = {.writes = kind != AccessKind::kRead,
                           .copies = running->copies,
                           .early = running->begins_early && !running->has_waited};
    CountAccess(place, address, bytes, way, region, running->by.run, running->by.first_run);
  }
}

void SeePrefetch(const void* place, const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  Region* const region = Find(place, address);
  const Simulation& simulation = TheSimulation();
  if (region == nullptr) {
    if (simulation.checks) ComplainOfBounds(place, address, 1, AccessKind::kRead);
  } else if (simulation.counts && running->begins_early && !running->has_waited) {
    CountEarlyPrefetch();
  }
}

void SeeCopyBegin(const void* place, void* shared, const void* from) {
  running->copies = true;
  See(place, from, kCopyBytes, AccessKind::kRead, true);
  See(static_cast<const char*>(place) + 1, shared, kCopyBytes, AccessKind::kWrite, true);
  running->copies = false;
  const auto address = reinterpret_cast<uintptr_t>(shared);
  for (Region* region : running->shared) {
    if (address < region->begin || address + kCopyBytes > region->end) continue;
    std::fill_n(region->copying.begin() + (address / 4 - region->begin / 4), kCopyBytes / 4,
                static_cast<uint16_t>(running->by.thread + 1));
  }
}

void SeeCopyArrive(const void* shared) {
  const auto address = reinterpret_cast<uintptr_t>(shared);
  for (Region* region : running->shared) {
    if (address < region->begin || address + kCopyBytes > region->end) continue;
    std::fill_n(region->copying.begin() + (address / 4 - region->begin / 4), kCopyBytes / 4,
                uint16_t{0});
    for (uintptr_t at = address; at < address + kCopyBytes; at += 4) {
      NoteAccess(running->by, AccessKind::kWrite, 15, region->word(at));
    }
  }
}

}  // namespace lm::on_host

// gcc's calls, by the names that it gives them.
using lm::on_host::AccessKind;
extern "C" {
void __tsan_init() {}

#define LM_SEE(name, bytes, kind, aligned)                                                    \
  void name(const void* address) {                                                            \
    if (lm::on_host::running == nullptr) return;                                              \
    lm::on_host::See(__builtin_return_address(0), address, bytes, AccessKind::kind, aligned); \
  }
#define LM_SEE_BOTH(bytes)                                  \
  LM_SEE(__tsan_read##bytes, bytes, kRead, true)            \
  LM_SEE(__tsan_write##bytes, bytes, kWrite, true)          \
  LM_SEE(__tsan_unaligned_read##bytes, bytes, kRead, false) \
  LM_SEE(__tsan_unaligned_write##bytes, bytes, kWrite, false)
LM_SEE_BOTH(1)
LM_SEE_BOTH(2)
LM_SEE_BOTH(4)
LM_SEE_BOTH(8)
LM_SEE_BOTH(16)
#undef LM_SEE_BOTH
#undef LM_SEE

// A structure: a GPU moves it word by word.
static void SeeRange(const char* place, const char* address, size_t bytes, AccessKind kind) {
  if (lm::on_host::running == nullptr) return;
  for (size_t i = 0; i < bytes; i += 4) {
    lm::on_host::See(place + i, address + i, static_cast<int>(std::min<size_t>(4, bytes - i)), kind,
                     false);
  }
}
void __tsan_read_range(const void* address, size_t bytes) {
  SeeRange(static_cast<const char*>(__builtin_return_address(0)), static_cast<const char*>(address),
           bytes, AccessKind::kRead);
}
void __tsan_write_range(const void* address, size_t bytes) {
  SeeRange(static_cast<const char*>(__builtin_return_address(0)), static_cast<const char*>(address),
           bytes, AccessKind::kWrite);
}
void __tsan_vptr_update(void**, void*) {}
}
