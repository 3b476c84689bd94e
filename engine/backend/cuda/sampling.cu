// The greatest logit of a row: each thread block takes a part of it, then a warp what they found.
#include <algorithm>
#include <cmath>

#include "engine/backend/cuda/launch.cuh"

namespace lm::cuda {
namespace {

constexpr int kThreads = 256;

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

__device__ __forceinline__ Candidate NoCandidate() { return {-INFINITY, -INFINITY, INT32_MAX}; }

// What a thread block found, and whether it saw what is no number.
struct PartPick {
  double logit, next;
  int32_t token;
  uint32_t bad;
};

__device__ __forceinline__ void TakeOverWarp(Candidate* own, uint32_t* bad) {
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    own->Take({__shfl_xor_sync(~0u, own->logit, apart), __shfl_xor_sync(~0u, own->next, apart),
               __shfl_xor_sync(~0u, own->token, apart)});
  }
  *bad = __reduce_max_sync(~0u, *bad);
}

// A part of a row's logits.
__global__ __launch_bounds__(kThreads) void PickOfPartKernel(Matrix logits, const GreedyRow* rows,
                                                             const uint64_t* masks,
                                                             const TokenBias* biases, int num_parts,
                                                             PartPick* parts) {
  constexpr int kAtATime = 4;
  __shared__ Candidate best[kThreads / kWarp];
  __shared__ uint32_t any_bad[kThreads / kWarp];
  LetNextKernelBegin();
  const GreedyRow row = rows[blockIdx.x];  // the step's
  const int cols = static_cast<int>(logits.cols);
  const int of_part = (cols + num_parts - 1) / num_parts;
  const int begin = static_cast<int>(blockIdx.y) * of_part, end = min(begin + of_part, cols);
  WaitForKernelBefore();
  const float* from = logits.data + row.row * logits.stride;
  Candidate own = NoCandidate();
  uint32_t bad = 0;
  for (int first = begin + static_cast<int>(threadIdx.x); first < end;
       first += kAtATime * kThreads) {
    float values[kAtATime];
    uint64_t allowed[kAtATime];
#pragma unroll
    for (int j = 0; j < kAtATime; ++j) {
      const int i = first + j * kThreads;
      allowed[j] = i >= end ? 0 : row.mask < 0 ? ~uint64_t{0} : masks[row.mask + i / 64];
      // Where none of 64 is allowed they are not looked at.
      values[j] = allowed[j] == 0 ? 0.0f : from[i];
    }
#pragma unroll
    for (int j = 0; j < kAtATime; ++j) {
      const int i = first + j * kThreads;
      if ((FloatToBits(values[j]) & 0x7f800000u) == 0x7f800000u) bad = 1;
      if ((allowed[j] >> (i % 64) & 1) == 0) continue;
      double adjusted = values[j];
      for (int32_t b = row.first_bias; b < row.first_bias + row.num_biases; ++b) {
        if (biases[b].token == i) adjusted += biases[b].bias;
      }
      own.Take({adjusted, -INFINITY, i});
    }
  }
  TakeOverWarp(&own, &bad);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (threadIdx.x % kWarp == 0) {
    best[warp] = own;
    any_bad[warp] = bad;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kThreads / kWarp; ++i) {
    own.Take(best[i]);
    bad |= any_bad[i];
  }
  parts[blockIdx.x * num_parts + blockIdx.y] = {own.logit, own.next, own.token, bad};
}

// A lane has a part.
__global__ __launch_bounds__(kWarp) void PickOfPartsKernel(const PartPick* parts, int count,
                                                           PickedToken* picked) {
  BeginKernel();
  Candidate own = NoCandidate();
  uint32_t bad = 0;
  if (static_cast<int>(threadIdx.x) < count) {
    const PartPick part = parts[blockIdx.x * count + threadIdx.x];
    own = {part.logit, part.next, part.token};
    bad = part.bad;
  }
  TakeOverWarp(&own, &bad);
  if (threadIdx.x != 0) return;
  picked[blockIdx.x] = {bad != 0 ? -1 : own.token, static_cast<float>(own.logit - own.next)};
}

// A part has some thousand logits at least.
int64_t PartsOf(int64_t cols) { return std::clamp<int64_t>(cols / 2048, 1, kWarp); }

}  // namespace

int64_t PickBytes(int64_t count, int64_t cols) {
  return count * PartsOf(cols) * static_cast<int64_t>(sizeof(PartPick));
}

cudaError_t PickGreatest(const Queue& queue, Matrix logits, const GreedyRow* rows, int64_t count,
                         const uint64_t* masks, const TokenBias* biases, void* scratch,
                         PickedToken* picked) {
  auto* const parts = static_cast<PartPick*>(scratch);
  const auto num_parts = static_cast<int>(PartsOf(logits.cols));
  const cudaError_t error = Launch(queue, PickOfPartKernel, Grid(count, num_parts), kThreads,
                                   logits, rows, masks, biases, num_parts, parts);
  if (error != cudaSuccess) return error;
  return Launch(queue, PickOfPartsKernel, Grid(count), kWarp, parts, num_parts, picked);
}

}  // namespace lm::cuda
