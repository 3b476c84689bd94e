// The tensor cores' products, on the host: of fragments laid out as engine/backend/cuda's
// warp_matrix.cuh says, after the PTX ISA; and what a warp makes of a word of each lane.
#ifndef LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_WARP_PRODUCTS_H_
#define LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_WARP_PRODUCTS_H_

#include <cstdint>

namespace lm::on_host {

void MultiplyInt8(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int32_t start, int32_t (&c)[4]);
void MultiplyInt8Half(uint32_t a0, uint32_t a1, uint32_t b, int32_t start, int32_t (&c)[4]);
// (The order in which tensor cores add is not documented; this one is ascending.)
template <bool kBf16>
void Multiply16(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float (&c)[4]);

uint32_t MaxOfWarp(uint32_t value);
int SumOfWarp(int value);

}  // namespace lm::on_host

#endif  // LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_WARP_PRODUCTS_H_
