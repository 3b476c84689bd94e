// What the benchmarks of kernels measure, and how they take times.
#ifndef LM_TESTS_BENCHMARKS_KERNEL_WORK_H_
#define LM_TESTS_BENCHMARKS_KERNEL_WORK_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/backend/backend.h"

namespace lm {

struct WeightShape {
  const char* name;
  int64_t n, k;
};
inline constexpr WeightShape kWeightShapes[] = {
    {"135M qkv", 960, 576},    {"135M up", 3072, 576}, {"135M down", 576, 1536},
    {"135M head", 49152, 576}, {"1B qkv", 3072, 2048}, {"1B up", 16384, 2048},
    {"1B down", 2048, 8192},
};

struct Clock {
  int threads = 1;
  bool cpu = false;  // the process's CPU time, shared out over its threads

  // Seconds from an unknown beginning.
  double Now() const;

  // The best time of body(run) in seconds: what the machine can do when it is not disturbed.
  template <typename F>
  double BestSeconds(F body, double window = 0.25) const {
    double best = 1e9;
    double stop = Now() + window;
    for (int run = 0; run < 5 || Now() < stop; ++run) {
      double begin = Now();
      body(run);
      best = std::min(best, Now() - begin);
    }
    return best;
  }
};

// Random blocks whose scales are ordinary numbers.
Buffer RandomBlocks(DType dtype, int64_t n, int64_t k);

// Of weights of so many bytes, the copies that no cache holds; products go round through them, as
// through the layers of a model.
size_t ColdCopies(size_t bytes);
// `blocks`, as RandomBlocks makes them, loaded ColdCopies times.
std::vector<std::unique_ptr<WeightMatrix>> LoadColdCopies(Backend* backend, DType dtype,
                                                          const WeightShape& shape,
                                                          const Buffer& blocks);

// Enough products at a time that one is not lost in the clock.
int64_t ProductsAtATime(const WeightShape& shape, int64_t tokens, size_t copies);
// Of one product with weights of LoadColdCopies.
double MatMulSeconds(Backend* backend, const std::vector<std::unique_ptr<WeightMatrix>>& weights,
                     const WeightShape& shape, int64_t tokens, const Clock& clock,
                     double window = 0.25);

// A layer of attention over heads of 64: `sequences` of `context` cached tokens of random values, the
// last `queries` of each asking; the first `shared` tokens are the same for all. The layers go round,
// their keys and values side by side in each block as a model has them.
struct AttentionWork {
  int32_t layers, heads, kv_heads, sequences, context, queries, shared = 0;
  DType kv_type = DType::kF16;
};
struct AttentionSpeed {
  double seconds, bytes_per_second, flops_per_second;
};
AttentionSpeed MeasureAttention(Backend* backend, const AttentionWork& work, const Clock& clock,
                                double window = 0.25);

}  // namespace lm

#endif  // LM_TESTS_BENCHMARKS_KERNEL_WORK_H_
