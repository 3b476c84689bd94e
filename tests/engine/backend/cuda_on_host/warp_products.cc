#include "tests/engine/backend/cuda_on_host/warp_products.h"

#include <algorithm>

#include "engine/backend/cuda/host_device.cuh"
#include "tests/engine/backend/cuda_on_host/run_grid.h"

namespace lm::on_host {
namespace {

// Calls add(i, a, b) for the words of the row of A and the column of B that make c[i], in order:
// `pairs` of them a lane, of the lanes t = 0 .. 3. Each thread has shown A's words, then B's.
template <typename Add>
void ForEachWord(int pairs, Add add) {
  const int g = Lane() / 4, t = Lane() % 4;
  for (int i = 0; i < 4; ++i) {
    for (int pair = 0; pair < pairs; ++pair) {
      for (int k = 0; k < 4; ++k) {
        add(i, ShownBy(g * 4 + k)[2 * pair + i / 2],
            ShownBy((2 * t + i % 2) * 4 + k)[2 * pairs + pair]);
      }
    }
  }
}

int32_t DotBytes(uint32_t a, uint32_t b) {
  return cuda::Dp4a(static_cast<int32_t>(a), static_cast<int32_t>(b), 0);
}

}  // namespace

void MultiplyInt8(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int32_t start,
                  int32_t (&c)[4]) {
  std::fill_n(c, 4, start);
  const uint32_t words[] = {a[0], a[1], a[2], a[3], b0, b1};
  Show("mma", words, 6);
  NoteMma(/*int8=*/true, 16 * 8 * 32);
  ForEachWord(2, [&](int i, uint32_t x, uint32_t y) { c[i] += DotBytes(x, y); });
}

void MultiplyInt8Half(uint32_t a0, uint32_t a1, uint32_t b, int32_t start, int32_t (&c)[4]) {
  std::fill_n(c, 4, start);
  const uint32_t words[] = {a0, a1, b};
  Show("mma", words, 3);
  NoteMma(/*int8=*/true, 16 * 8 * 16);
  ForEachWord(1, [&](int i, uint32_t x, uint32_t y) { c[i] += DotBytes(x, y); });
}

template <bool kBf16>
void Multiply16(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float (&c)[4]) {
  const uint32_t words[] = {a[0], a[1], a[2], a[3], b0, b1};
  Show("mma", words, 6);
  NoteMma(/*int8=*/false, 16 * 8 * 16);
  auto load = [](uint32_t bits) {
    return kBf16 ? cuda::LoadBf16(static_cast<uint16_t>(bits))
                 : cuda::LoadF16(static_cast<uint16_t>(bits));
  };
  ForEachWord(2, [&](int i, uint32_t x, uint32_t y) {
    c[i] += load(x & 0xffff) * load(y & 0xffff);
    c[i] += load(x >> 16) * load(y >> 16);
  });
}
template void Multiply16<false>(const uint32_t (&)[4], uint32_t, uint32_t, float (&)[4]);
template void Multiply16<true>(const uint32_t (&)[4], uint32_t, uint32_t, float (&)[4]);

uint32_t MaxOfWarp(uint32_t value) {
  Show("redux", &value, 1);
  uint32_t result = 0;
  for (int i = 0; i < 32; ++i) result = std::max(result, *ShownBy(i));
  return result;
}

int SumOfWarp(int value) {
  const auto word = static_cast<uint32_t>(value);
  Show("redux", &word, 1);
  int result = 0;
  for (int i = 0; i < 32; ++i) result += static_cast<int>(*ShownBy(i));
  return result;
}

}  // namespace lm::on_host
