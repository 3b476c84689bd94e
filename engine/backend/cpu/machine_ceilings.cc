// Measures the ceilings on the threads that would compute: multiplications, and reads from memory.
#include "engine/backend/machine_ceilings.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <numeric>

#include "absl/cleanup/cleanup.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "engine/backend/cpu/peak_loops.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/thread_pool.h"

namespace lm {
namespace {

// Of all threads together: beyond what the caches of most machines hold, and quickly allocated.
constexpr int64_t kReadBytes = int64_t{256} << 20;

class Stopwatch {
 public:
  Stopwatch(int threads, absl::Duration each, absl::FunctionRef<bool()> give_up)
      : pool_(threads), each_(each), give_up_(give_up) {}

  int threads() const { return pool_.num_threads(); }

  // Runs body(i) for i in [0, threads()) once. False where it was given up before.
  bool Once(absl::FunctionRef<void(int64_t)> body) {
    if (give_up_()) return false;
    pool_.ParallelFor(threads(), body);
    return true;
  }

  // Runs body(i) for i in [0, threads()) at once, several times. Amount per second of the best run,
  // each of which does `amount` in all; 0 where it was given up.
  double Rate(double amount, absl::FunctionRef<void(int64_t)> body) {
    absl::Duration best = absl::InfiniteDuration();
    const MonotonicTime stop = MonotonicTime::Now() + each_;
    for (int run = 0; run < 3 || MonotonicTime::Now() < stop; ++run) {
      const MonotonicTime begin = MonotonicTime::Now();
      if (!Once(body)) return 0;
      best = std::min(best, MonotonicTime::Now() - begin);
    }
    return amount / absl::ToDoubleSeconds(best);
  }

  double Rate(const PeakLoop& loop) {
    if (loop.run == nullptr) return 0;
    return Rate(threads() * loop.operations, [&loop](int64_t) { loop.run(); });
  }

 private:
  ThreadPool pool_;
  const absl::Duration each_;
  const absl::FunctionRef<bool()> give_up_;
};

// Of several places at a time, side by side: a core has more reads under way so than of one.
double ReadBytesPerSecond(Stopwatch* watch) {
  constexpr int64_t kSlices = 8, kPlaces = 8;
  const int64_t threads = watch->threads();
  const int64_t words = kReadBytes / 8 / threads / 64 * 64;  // a thread's
  std::unique_ptr<uint64_t[]> data(new (std::nothrow) uint64_t[words * threads]);
  if (data == nullptr) return 0;
  // Touching the pages takes longer than reading them: in slices, for an impatient caller.
  for (int64_t slice = 0; slice < kSlices; ++slice) {
    const bool done = watch->Once([&](int64_t part) {
      const int64_t count = words / kSlices;
      std::fill_n(data.get() + part * words + slice * count, count, uint64_t{1});
    });
    if (!done) return 0;
  }
  std::atomic<uint64_t> total{0};  // so that nothing is read in vain
  return watch->Rate(static_cast<double>(words * 8 * threads), [&](int64_t part) {
    const uint64_t* from = data.get() + part * words;
    constexpr int64_t kLine = 8;
    uint64_t sum[kLine] = {};
    for (int64_t i = 0; i < words / kPlaces; i += kLine) {
      for (int64_t place = 0; place < kPlaces; ++place) {
        const uint64_t* line = from + place * (words / kPlaces) + i;
        for (int64_t lane = 0; lane < kLine; ++lane) sum[lane] += line[lane];
      }
    }
    total.fetch_add(std::accumulate(std::begin(sum), std::end(sum), uint64_t{0}),
                    std::memory_order_relaxed);
  });
}

}  // namespace

MachineCeilings MeasureCeilings(int threads, Isa isa, absl::Duration each,
                                absl::FunctionRef<bool()> give_up) {
  Stopwatch watch(threads, each, give_up);
  const PeakLoops loops = GetPeakLoops(isa);
  return {.read_bytes_per_second = ReadBytesPerSecond(&watch),
          .fp32_flops_per_second = watch.Rate(loops.fp32),
          .int8_ops_per_second = watch.Rate(loops.int8)};
}

namespace {

std::atomic<bool> measures_ceilings{false};

}  // namespace

bool MeasuresCeilings() { return measures_ceilings.load(std::memory_order_relaxed); }

std::optional<MachineCeilings> CeilingsOfThisProcess(int threads,
                                                     absl::FunctionRef<bool()> give_up) {
  struct Known {
    absl::Mutex mutex;
    std::map<int, MachineCeilings> by_threads;
  };
  static Known& process = *new Known;  // never destroyed
  auto& [mutex, known] = process;
  const absl::Duration each = absl::Milliseconds(40);
  while (!mutex.TryLock()) {
    if (give_up()) return std::nullopt;
    absl::SleepFor(absl::Milliseconds(2));
  }
  std::unique_ptr<absl::Mutex, void (*)(absl::Mutex*)> unlock(&mutex,
                                                              [](absl::Mutex* m) { m->Unlock(); });
  const auto found = known.find(threads);
  if (found != known.end()) return found->second;
  bool ended = false;
  measures_ceilings.store(true, std::memory_order_relaxed);
  absl::Cleanup done = [] { measures_ceilings.store(false, std::memory_order_relaxed); };
  const MachineCeilings measured = MeasureCeilings(threads, BestIsa(), each, [&] {
    ended = ended || give_up();
    return ended;
  });
  if (ended) return std::nullopt;
  return known.emplace(threads, measured).first->second;
}

}  // namespace lm
