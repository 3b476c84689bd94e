#include "tests/benchmarks/machine_ceilings.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

namespace lm {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Runs body(thread) on every thread at once, several times; the best run's seconds.
double BestSeconds(int threads, const std::function<void(int)>& body) {
  double best = 1e9;
  auto stop = Clock::now() + std::chrono::milliseconds(400);
  for (int run = 0; run < 3 || Clock::now() < stop; ++run) {
    auto begin = Clock::now();
    std::vector<std::thread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back(body, t);
    body(0);
    for (auto& other : others) other.join();
    best = std::min(best, Seconds(begin));
  }
  return best;
}

// Twelve accumulators hide the latency of the two multiply-add ports; the empty asm keeps them.
constexpr int kAccumulators = 12;
constexpr int64_t kLoops = 1 << 20;

__attribute__((target("avx512f"))) void Fma512() {
  __m512 acc[kAccumulators], x = _mm512_set1_ps(1e-9f), y = _mm512_set1_ps(0.5f);
  for (auto& a : acc) a = x;
  for (int64_t i = 0; i < kLoops; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) asm volatile("vfmadd231ps %1, %2, %0" : "+v"(a) : "v"(x), "v"(y));
  }
}

__attribute__((target("avx2,fma"))) void Fma256() {
  __m256 acc[kAccumulators], x = _mm256_set1_ps(1e-9f), y = _mm256_set1_ps(0.5f);
  for (auto& a : acc) a = x;
  for (int64_t i = 0; i < kLoops; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) asm volatile("vfmadd231ps %1, %2, %0" : "+x"(a) : "x"(x), "x"(y));
  }
}

__attribute__((target("avx512f,avx512vnni"))) void Dot512() {
  __m512i acc[kAccumulators], x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(1);
  for (auto& a : acc) a = _mm512_setzero_si512();
  for (int64_t i = 0; i < kLoops; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) asm volatile("vpdpbusd %1, %2, %0" : "+v"(a) : "v"(y), "v"(x));
  }
}

// Without VNNI a product of 32 bytes takes a multiply to 16 bits, a multiply to 32 and an add.
__attribute__((target("avx2"))) void Dot256() {
  constexpr int kSums = 6;
  __m256i acc[kSums], x = _mm256_set1_epi8(3), y = _mm256_set1_epi8(1);
  __m256i ones = _mm256_set1_epi16(1);
  for (auto& a : acc) a = _mm256_setzero_si256();
  for (int64_t i = 0; i < kLoops; ++i) {
#pragma GCC unroll 6
    for (auto& a : acc) {
      __m256i product;
      asm volatile("vpmaddubsw %2, %3, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
                   : "+x"(a), "=&x"(product)
                   : "x"(y), "x"(x), "x"(ones));
    }
  }
}

double ReadBytesPerSecond(int threads) {
  constexpr size_t kBytes = size_t{256} << 20;  // a thread; far beyond any cache's share
  std::vector<std::vector<uint64_t>> data(threads);
  for (auto& words : data) words.assign(kBytes / 8, 1);
  std::vector<uint64_t> sums(threads * 8);
  double seconds = BestSeconds(threads, [&](int t) {
    const uint64_t* words = data[t].data();
    uint64_t sum[8] = {};
    for (size_t i = 0; i < kBytes / 8; i += 8) {
      for (int lane = 0; lane < 8; ++lane) sum[lane] += words[i + lane];
    }
    std::memcpy(&sums[t * 8], sum, sizeof(sum));
  });
  asm volatile("" : : "r"(sums.data()) : "memory");
  return threads * static_cast<double>(kBytes) / seconds;
}

}  // namespace

MachineCeilings MeasureCeilings(int threads, Isa isa) {
  const bool wide = isa == Isa::kAvx512Vnni;
  auto rate = [threads](void (*kernel)(), double ops_per_loop) {
    double seconds = BestSeconds(threads, [kernel](int) { kernel(); });
    return threads * kLoops * ops_per_loop / seconds;
  };
  MachineCeilings ceilings{};
  ceilings.read_bytes_per_second = ReadBytesPerSecond(threads);
  if (isa != Isa::kPortable) {
    ceilings.fp32_flops_per_second =
        wide ? rate(Fma512, kAccumulators * 16 * 2.0) : rate(Fma256, kAccumulators * 8 * 2.0);
    ceilings.int8_ops_per_second =
        wide ? rate(Dot512, kAccumulators * 64 * 2.0) : rate(Dot256, 6 * 32 * 2.0);
  }
  return ceilings;
}

}  // namespace lm
