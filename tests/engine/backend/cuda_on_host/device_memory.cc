#include "tests/engine/backend/cuda_on_host/device_memory.h"

#include <cstring>
#include <map>
#include <set>
#include <utility>

namespace lm::on_host {
namespace {

constexpr size_t kRoom = 4096;      // on both sides of an allocation
constexpr size_t kAlignment = 256;  // cudaMalloc's
constexpr int kGarbage = 0xcd;

std::map<uintptr_t, std::unique_ptr<Region>>& Allocations() {  // by their ends
  static auto* const allocations = new std::map<uintptr_t, std::unique_ptr<Region>>;
  return *allocations;
}

std::set<std::pair<int, int>>& Readers() {  // each with whom it reads
  static auto* const readers = new std::set<std::pair<int, int>>;
  return *readers;
}

}  // namespace

Region::Region(std::string name, uintptr_t begin, uintptr_t end, bool shared, int device)
    : name(std::move(name)), begin(begin), end(end), shared(shared), device(device) {
  const size_t count = (end + 3) / 4 - begin / 4;
  words = static_cast<Word*>(std::calloc(count, sizeof(Word)));
  if (shared) {
    copying.resize(count);
  } else {
    sectors = static_cast<uint32_t*>(std::calloc(end / 32 - begin / 32 + 1, sizeof(uint32_t)));
  }
}

Region::~Region() {
  std::free(words);
  std::free(sectors);
}

void Region::Forget() {
  const size_t count = (end + 3) / 4 - begin / 4;
  std::fill_n(words, count, Word());
  if (sectors != nullptr) std::fill_n(sectors, end / 32 - begin / 32 + 1, 0);
}

void* AllocateOnDevice(int device, size_t bytes) {
  auto* const room = static_cast<char*>(std::aligned_alloc(
      kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment + 2 * kRoom));
  if (room == nullptr) return nullptr;
  char* const data = room + kRoom;
  std::memset(room, kGarbage, kRoom);
  std::memset(data + bytes, kGarbage, kRoom);
  const auto begin = reinterpret_cast<uintptr_t>(data);
  Allocations()[begin + bytes] = std::make_unique<Region>(
      "an allocation of " + std::to_string(bytes) + " bytes", begin, begin + bytes, false, device);
  return data;
}

void FreeOnDevice(void* data) {
  if (data == nullptr) return;
  const Region* region = AllocationOf(reinterpret_cast<uintptr_t>(data));
  if (region == nullptr) return;
  Allocations().erase(region->end);
  std::free(static_cast<char*>(data) - kRoom);
}

int64_t BytesAllocated(int device) {
  int64_t bytes = 0;
  for (const auto& [end, region] : Allocations()) {
    if (region->device == device) bytes += static_cast<int64_t>(region->end - region->begin);
  }
  return bytes;
}

void LetRead(int device, int peer) { Readers().insert({device, peer}); }

bool MayRead(int device, int peer) { return device == peer || Readers().count({device, peer}) > 0; }

int64_t NumAllocations() { return static_cast<int64_t>(Allocations().size()); }

Region* AllocationOf(uintptr_t address) {
  const auto found = Allocations().upper_bound(address);
  if (found == Allocations().end() || address < found->second->begin) return nullptr;
  return found->second.get();
}

bool IsAllocated(int device, const void* data, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const Region* region = AllocationOf(begin);
  return bytes == 0 ||
         (region != nullptr && begin + bytes <= region->end && region->device == device);
}

std::string Describe(uintptr_t address) {
  const auto above = Allocations().upper_bound(address);
  if (above != Allocations().end() && address >= above->second->begin) return above->second->name;
  if (above != Allocations().begin()) {
    const Region& before = *std::prev(above)->second;
    if (address - before.end < kRoom) {
      return std::to_string(address - before.end) + " bytes behind " + before.name;
    }
  }
  if (above != Allocations().end() && above->second->begin - address <= kRoom) {
    return std::to_string(above->second->begin - address) + " bytes before " + above->second->name;
  }
  return "memory that is not the device's";
}

void ForgetAccesses() {
  for (auto& [end, region] : Allocations()) region->Forget();
}

}  // namespace lm::on_host
