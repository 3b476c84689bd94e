// The greatest logit of a row, a thread block a row.
#include <cmath>

#include "engine/backend/cuda/launch.cuh"

namespace lm::cuda {
namespace {

constexpr int kThreads = 1024;

// A logit and its token: the greater logit, of two that are equal the lower token; and the greatest
// of the other logits.
struct Candidate {
  double logit;
  double next;
  int32_t token;

  __device__ void Take(const Candidate& other) {
    next = fmax(fmin(logit, other.logit), fmax(next, other.next));
    if (other.logit > logit || (other.logit == logit && other.token < token)) {
      logit = other.logit;
      token = other.token;
    }
  }
};

__global__ void PickGreatestKernel(Matrix logits, const GreedyRow* rows, const uint64_t* masks,
                                   const TokenBias* biases, PickedToken* picked) {
  __shared__ Candidate best[kThreads / kWarp];
  __shared__ uint32_t any_bad;
  LetNextKernelBegin();
  const GreedyRow row = rows[blockIdx.x];  // the step's
  if (threadIdx.x == 0) any_bad = 0;
  __syncthreads();
  WaitForKernelBefore();
  const float* from = logits.data + row.row * logits.stride;
  Candidate own = {-INFINITY, -INFINITY, INT32_MAX};
  bool bad = false;
  for (int64_t i = threadIdx.x; i < logits.cols; i += kThreads) {
    uint64_t allowed = ~uint64_t{0};
    if (row.mask >= 0) allowed = masks[row.mask + i / 64];
    if (allowed == 0) continue;  // these are not looked at
    const float logit = from[i];
    bad = bad || (FloatToBits(logit) & 0x7f800000u) == 0x7f800000u;
    if ((allowed >> (i % 64) & 1) == 0) continue;
    double adjusted = logit;
    for (int32_t b = row.first_bias; b < row.first_bias + row.num_biases; ++b) {
      if (biases[b].token == i) adjusted += biases[b].bias;
    }
    own.Take({adjusted, -INFINITY, static_cast<int32_t>(i)});
  }
  if (bad) atomicMax(&any_bad, 1u);
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    own.Take({__shfl_xor_sync(~0u, own.logit, apart), __shfl_xor_sync(~0u, own.next, apart),
              __shfl_xor_sync(~0u, own.token, apart)});
  }
  if (threadIdx.x % kWarp == 0) best[threadIdx.x / kWarp] = own;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kThreads / kWarp; ++i) own.Take(best[i]);
  picked[blockIdx.x] = {any_bad != 0 ? -1 : own.token, static_cast<float>(own.logit - own.next)};
}

}  // namespace

cudaError_t PickGreatest(const Queue& queue, Matrix logits, const GreedyRow* rows, int64_t count,
                         const uint64_t* masks, const TokenBias* biases, PickedToken* picked) {
  return Launch(queue, PickGreatestKernel, Grid(count), kThreads, logits, rows, masks, biases,
                picked);
}

}  // namespace lm::cuda
