// The greatest logit of a row: each thread block takes a part of it, then a warp what they found.
#include <algorithm>
#include <cmath>

#include "engine/backend/cuda/sampled_row.cuh"

namespace lm::cuda {
namespace {

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

// A part of a row's logits. Of the first `num_drawn` rows it also prepares what is drawn with.
__global__ __launch_bounds__(kSampleThreads) void PickOfPartKernel(SampledRows rows,
                                                                   int64_t num_drawn,
                                                                   DrawState* states,
                                                                   PartPick* parts) {
  __shared__ Candidate best[kSampleThreads / kWarp];
  __shared__ uint32_t any_bad[kSampleThreads / kWarp];
  __shared__ uint32_t adjusted[kMostPartTokens / 32];
  LetNextKernelBegin();
  const SampledPart part = PartOf(rows, blockIdx.x, static_cast<int>(blockIdx.y));  // the step's
  MarkAdjusted(part, adjusted);
  WaitForKernelBefore();
  __syncthreads();
  if (blockIdx.x < num_drawn) {
    DrawState& state = states[blockIdx.x];
    for (int i = static_cast<int>(blockIdx.y * kSampleThreads + threadIdx.x); i < kNumBuckets;
         i += rows.num_parts * kSampleThreads) {
      state.sums[i] = 0;
      state.counts[i] = 0;
    }
    if (blockIdx.y == 0 && threadIdx.x == 0) state.num_listed = 0;
  }
  Candidate own = NoCandidate();
  uint32_t bad = 0;
  ForTokensOf(
      part, adjusted,
      [&](float value) {
        if ((FloatToBits(value) & 0x7f800000u) == 0x7f800000u) bad = 1;
      },
      [&](int token, double logit) {
        own.Take({logit, -INFINITY, token});
      });
  TakeOverWarp(&own, &bad);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (threadIdx.x % kWarp == 0) {
    best[warp] = own;
    any_bad[warp] = bad;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kSampleThreads / kWarp; ++i) {
    own.Take(best[i]);
    bad |= any_bad[i];
  }
  parts[blockIdx.x * rows.num_parts + blockIdx.y] = {own.logit, own.next, own.token, bad};
}

// A lane has a part.
__global__ __launch_bounds__(kWarp) void PickOfPartsKernel(const PartPick* parts, int count,
                                                           double* greatest, PickedToken* picked) {
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
  greatest[blockIdx.x] = own.logit;
  picked[blockIdx.x] = {bad != 0 ? -1 : own.token, static_cast<float>(own.logit - own.next)};
}

}  // namespace

int64_t SampleBytes(int64_t num_drawn, int64_t count, int64_t cols) {
  return num_drawn * static_cast<int64_t>(sizeof(DrawState)) +
         count * static_cast<int64_t>(sizeof(double)) +
         count * SampledPartsOf(cols) * static_cast<int64_t>(sizeof(PartPick));
}

cudaError_t SampleRows(const Queue& queue, Matrix logits, const SampledRow* rows, int64_t num_drawn,
                       int64_t count, const uint64_t* masks, const LogitAdjustment* adjustments,
                       void* scratch, PickedToken* picked) {
  auto* const states = static_cast<DrawState*>(scratch);
  auto* const greatest = reinterpret_cast<double*>(states + num_drawn);
  auto* const parts = reinterpret_cast<PartPick*>(greatest + count);
  const auto num_parts = static_cast<int>(SampledPartsOf(logits.cols));
  const SampledRows sampled = {logits, rows, masks, adjustments, num_parts};
  cudaError_t error = Launch(queue, PickOfPartKernel, Grid(count, num_parts), kSampleThreads,
                             sampled, num_drawn, states, parts);
  if (error != cudaSuccess) return error;
  error = Launch(queue, PickOfPartsKernel, Grid(count), kWarp, parts, num_parts, greatest, picked);
  if (error != cudaSuccess || num_drawn == 0) return error;
  return DrawTokens(queue, sampled, num_drawn, greatest, states, picked);
}

}  // namespace lm::cuda
