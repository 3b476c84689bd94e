#include "tests/engine/backend/cuda_on_host/access_counts.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace lm::on_host {
namespace {

constexpr int kLanes = 32, kBanks = 32, kBankBytes = 4, kSectorBytes = 32;

// An instruction of a warp.
struct Request {
  bool shared = false;
  AccessWay way;
  int bytes = 0;  // of a lane
  int lanes = 0;
  uintptr_t addresses[kLanes];
};

// A place of the program: its instructions of this segment, and how many the lane has done.
struct Place {
  std::vector<uint32_t> requests;
  uint32_t done = 0;
  uint32_t lane_number = 0;  // done is of this lane
};

std::map<const void*, uint32_t> place_numbers;
std::vector<Place> places;
std::vector<uint32_t> used_places;
std::vector<Request> requests;
size_t num_requests = 0;
uint32_t lane_number = 0;
LaunchCounts counts;                                   // of the launch
std::map<Region*, std::pair<double, double>> touched;  // sectors of one block, of several
std::vector<int> load_waits(32);                       // of the block's warps
std::vector<double> copy_waits(32);
std::vector<LaunchCounts> all;

uint32_t NumberOf(const void* place) {
  struct Known {
    const void* place = nullptr;
    uint32_t number = 0;
  };
  static Known known[1024];
  Known& slot = known[(reinterpret_cast<uintptr_t>(place) >> 1) % 1024];
  if (slot.place != place) {
    const auto [entry, is_new] = place_numbers.try_emplace(place, places.size());
    if (is_new) places.emplace_back();
    slot = {place, entry->second};
  }
  return slot.number;
}

// Distinct values of address / size, of lanes [begin, end); their addresses may be of several
// units.
template <typename Function>
int Distinct(const Request& request, int begin, int end, int unit, uintptr_t* units,
             Function counted) {
  int count = 0;
  for (int i = begin; i < end; ++i) {
    const uintptr_t last = (request.addresses[i] + request.bytes - 1) / unit;
    for (uintptr_t at = request.addresses[i] / unit; at <= last; ++at) {
      if (std::find(units, units + count, at) != units + count) continue;
      units[count++] = at;
      counted(at);
    }
  }
  return count;
}

constexpr auto kNothing = [](uintptr_t) {};

// A request of 8 bytes a lane is served by halves of a warp, one of 16 by quarters.
void CountShared(const Request& request) {
  const int lanes = kLanes / std::max(1, request.bytes / kBankBytes);
  uintptr_t words[kLanes * 2];
  ++counts.shared.requests;
  for (int begin = 0; begin < request.lanes; begin += lanes) {
    int of_bank[kBanks] = {};
    const int end = std::min(begin + lanes, request.lanes);
    const int distinct = Distinct(request, begin, end, kBankBytes, words,
                                  [&](uintptr_t word) { ++of_bank[word % kBanks]; });
    counts.shared.wavefronts += *std::max_element(of_bank, of_bank + kBanks);
    counts.shared.least_wavefronts += (distinct + kBanks - 1) / kBanks;
  }
}

void CountGlobal(const Request& request, double* burst) {
  uintptr_t units[kLanes * 16];
  GlobalCounts& to = request.way.writes ? counts.stores : counts.loads;
  ++to.requests;
  const int sectors = Distinct(request, 0, request.lanes, kSectorBytes, units, kNothing);
  to.sectors += sectors;
  if (request.way.early) {
    counts.early_bytes += sectors * kSectorBytes;
  } else if (!request.way.writes && !request.way.copies) {
    *burst += sectors * kSectorBytes;
  }
  // Bytes in the accesses' own unit, or in single ones where they overlap.
  bool aligned = true;
  for (int i = 0; i < request.lanes; ++i) aligned &= request.addresses[i] % request.bytes == 0;
  const int unit = aligned ? request.bytes : 1;
  to.bytes += unit * Distinct(request, 0, request.lanes, unit, units, kNothing);
}

}  // namespace

void BeginLaunch(const std::string& kernel, dim3 grid, dim3 block, int shared_bytes,
                 bool begins_early) {
  counts = {};
  counts.kernel = kernel;
  counts.grid = grid;
  counts.block = block;
  counts.shared_bytes = shared_bytes;
  counts.launches = 1;
  counts.early_launches = begins_early ? 1 : 0;
  touched.clear();
}

void EndLaunch(double scale) {
  for (GlobalCounts* part : {&counts.loads, &counts.stores}) {
    for (double* value : {&part->requests, &part->sectors, &part->bytes}) *value *= scale;
  }
  SharedCounts& shared = counts.shared;
  for (double* value : {&shared.requests, &shared.wavefronts, &shared.least_wavefronts,
                        &counts.mma_int8, &counts.mma_16, &counts.mma_instructions, &counts.fma,
                        &counts.shuffles, &counts.barriers, &counts.early_bytes}) {
    *value *= scale;
  }
  // What one block alone touches others touch elsewhere, as long as there is more.
  for (const auto& [region, sectors] : touched) {
    const double most = static_cast<double>(region->end / 32 - region->begin / 32 + 1);
    counts.dram_bytes += kSectorBytes * std::min(most, sectors.first * scale + sectors.second);
  }
  auto key = [](const LaunchCounts& c) {
    return std::tie(c.kernel, c.grid.x, c.grid.y, c.block.x, c.shared_bytes);
  };
  const auto same = std::find_if(all.begin(), all.end(),
                                 [&](const LaunchCounts& c) { return key(c) == key(counts); });
  if (same == all.end()) {
    all.push_back(std::move(counts));
    return;
  }
  ++same->launches;
  auto add = [](const GlobalCounts& from, GlobalCounts* to) {
    to->requests += from.requests;
    to->sectors += from.sectors;
    to->bytes += from.bytes;
  };
  add(counts.loads, &same->loads);
  add(counts.stores, &same->stores);
  same->shared.requests += shared.requests;
  same->shared.wavefronts += shared.wavefronts;
  same->shared.least_wavefronts += shared.least_wavefronts;
  same->dram_bytes += counts.dram_bytes;
  same->early_launches += counts.early_launches;
  same->early_bytes += counts.early_bytes;
  same->mma_int8 += counts.mma_int8;
  same->mma_16 += counts.mma_16;
  same->mma_instructions += counts.mma_instructions;
  same->fma += counts.fma;
  same->shuffles += counts.shuffles;
  same->barriers += counts.barriers;
  same->most_burst_bytes = std::max(same->most_burst_bytes, counts.most_burst_bytes);
  same->most_load_waits = std::max(same->most_load_waits, counts.most_load_waits);
  same->most_copy_waits = std::max(same->most_copy_waits, counts.most_copy_waits);
}

void BeginLane() { ++lane_number; }

void CountAccess(const void* place, uintptr_t address, int bytes, AccessWay way, Region* region,
                 uint32_t run, uint32_t first_run) {
  const uint32_t number = NumberOf(place);
  Place& at = places[number];
  if (at.lane_number != lane_number) {
    at.lane_number = lane_number;
    at.done = 0;
    if (at.requests.empty()) used_places.push_back(number);
  }
  if (at.done == at.requests.size()) {
    if (num_requests == requests.size()) requests.emplace_back();
    Request& request = requests[num_requests];
    request.shared = region->shared;
    request.way = way;
    request.bytes = bytes;
    request.lanes = 0;
    at.requests.push_back(static_cast<uint32_t>(num_requests++));
  }
  Request& request = requests[at.requests[at.done++]];
  if (request.lanes < kLanes) request.addresses[request.lanes++] = address;
  if (region->shared) return;
  auto& [one, several] = touched[region];
  for (uintptr_t s = address / 32; s <= (address + bytes - 1) / 32; ++s) {
    uint32_t& by = region->sectors[s - region->begin / 32];  // the run, and whether others, too
    if (by >> 1 < first_run) {
      by = run << 1;
      ++one;
    } else if (by >> 1 != run && (by & 1) == 0) {
      by |= 1;
      --one;
      ++several;
    }
  }
}

void CountEarlyPrefetch() { counts.early_bytes += 128; }

void BeginBlock() {
  std::fill(load_waits.begin(), load_waits.end(), 0);
  std::fill(copy_waits.begin(), copy_waits.end(), 0.0);
}

void EndSegment(int warp) {
  double burst = 0;
  for (size_t i = 0; i < num_requests; ++i) {
    if (requests[i].shared) {
      CountShared(requests[i]);
    } else {
      CountGlobal(requests[i], &burst);
    }
  }
  counts.most_burst_bytes = std::max(counts.most_burst_bytes, burst);
  if (burst > 0) ++load_waits[warp];
  counts.most_load_waits = std::max<double>(counts.most_load_waits, load_waits[warp]);
  num_requests = 0;
  for (const uint32_t number : used_places) {
    places[number].requests.clear();
    places[number].lane_number = 0;
  }
  used_places.clear();
}

void CountCopyWait(int warp, int groups_left) {
  copy_waits[warp] += 1.0 / (groups_left + 1);
  counts.most_copy_waits = std::max(counts.most_copy_waits, copy_waits[warp]);
}

void CountMma(bool int8, double multiplications) {
  (int8 ? counts.mma_int8 : counts.mma_16) += multiplications;
  ++counts.mma_instructions;
}
void CountFma() { ++counts.fma; }
void CountShuffle() { ++counts.shuffles; }
void CountBarrier() { ++counts.barriers; }

std::vector<LaunchCounts> TakeCounts() { return std::exchange(all, {}); }

}  // namespace lm::on_host
