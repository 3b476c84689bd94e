// Counter-based random numbers: a pure function of (seed, counter), so that a sampled token depends
// on nothing but its request's seed and its position.
#ifndef LM_ENGINE_BASE_RANDOM_H_
#define LM_ENGINE_BASE_RANDOM_H_

#include <cstdint>

namespace lm {

// 64 well-mixed bits (the SplitMix64 finaliser applied to both words; Steele et al. 2014).
inline uint64_t RandomBits(uint64_t seed, uint64_t counter) {
  auto mix = [](uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  };
  return mix(mix(seed + 0x9e3779b97f4a7c15u) + (counter + 1) * 0x9e3779b97f4a7c15u);
}

// Uniform in [0, 1), 53 bits.
inline double RandomUniform(uint64_t seed, uint64_t counter) {
  return static_cast<double>(RandomBits(seed, counter) >> 11) * 0x1p-53;
}

}  // namespace lm

#endif  // LM_ENGINE_BASE_RANDOM_H_
