// Kernels that each are right, or with kFault wrong in one place: what the simulator must find
// (planted_faults_test.cc).
#include "tests/engine/backend/cuda_on_host/planted_faults.h"

#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/warp_matrix.cuh"

namespace lm::cuda {
namespace {

constexpr int kThreads = 64;

// to[i] = from[63 - i]: through shared memory, all of which is written before it is read.
template <bool kFault>
__global__ void ReverseKernel(const float* from, float* to) {
  __shared__ float values[kThreads];
  values[threadIdx.x] = from[threadIdx.x];
  if constexpr (!kFault) __syncthreads();
  to[threadIdx.x] = values[kThreads - 1 - threadIdx.x];
}

// The same within each warp, whose own barrier is enough.
template <bool kFault>
__global__ void ReverseWarpsKernel(const float* from, float* to) {
  __shared__ float values[kThreads];
  values[threadIdx.x] = from[threadIdx.x];
  if constexpr (!kFault) __syncwarp();
  to[threadIdx.x] = values[threadIdx.x / kWarp * kWarp + kWarp - 1 - threadIdx.x % kWarp];
}

// All threads write their warp's sum of something; the next round must not begin before it is read.
template <bool kFault>
__global__ void RoundsKernel(const float* from, float* to) {
  __shared__ float sums[kThreads / kWarp];
  float total = 0;
  for (int round = 0; round < 2; ++round) {
    if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = from[threadIdx.x + round];
    __syncthreads();
    total += sums[0] + sums[1];
    if constexpr (!kFault) __syncthreads();
  }
  to[threadIdx.x] = total;
}

// Two blocks that each write half of `to`, or both all of it.
template <bool kFault>
__global__ void HalvesKernel(const float* from, float* to) {
  const int block = kFault ? 0 : blockIdx.x;
  if (threadIdx.x < kWarp) to[block * kWarp + threadIdx.x] = from[threadIdx.x];
}

// C (16, 8) = A B of int8: A (16, 32) row by row, behind it B (32, 8) column by column.
template <bool kFault>
__global__ void FragmentsKernel(const float* from, float* to) {
  const auto* const a = reinterpret_cast<const int8_t*>(from);
  const int8_t* const b = a + 16 * 32;
  auto* const c = reinterpret_cast<int32_t*>(to);
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  auto word = [](const int8_t* from) { return *reinterpret_cast<const uint32_t*>(from); };
  uint32_t rows[4];
  for (int i = 0; i < 4; ++i) {
    const int row = g + (kFault ? i / 2 : i % 2) * 8,
              column = (kFault ? i % 2 : i / 2) * 16 + 4 * t;
    rows[i] = word(a + row * 32 + column);
  }
  int32_t sums[4];
  MultiplyInt8(rows, word(b + g * 32 + 4 * t), word(b + g * 32 + 16 + 4 * t), 0, sums);
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}

// Two groups of copies, of which the second is still under way when the first is read.
template <bool kFault>
__global__ void CopiesKernel(const float* from, float* to) {
  auto* const values = reinterpret_cast<float4*>(DynamicShared());
  const auto* pieces = reinterpret_cast<const float4*>(from);
  BeginCopy(values + threadIdx.x, pieces + threadIdx.x);
  EndCopyGroup();
  BeginCopy(values + kWarp + threadIdx.x, pieces + kWarp + threadIdx.x);
  EndCopyGroup();
  if constexpr (kFault) {
    WaitForCopies<2>();
  } else {
    WaitForCopies<1>();
  }
  reinterpret_cast<float4*>(to)[threadIdx.x] = values[threadIdx.x];
  WaitForCopies<0>();
}

// A copy that is waited for, by its own thread; another one reads it.
template <bool kFault>
__global__ void OthersCopiesKernel(const float* from, float* to) {
  auto* const values = reinterpret_cast<float4*>(DynamicShared());
  BeginCopy(values + threadIdx.x, reinterpret_cast<const float4*>(from) + threadIdx.x);
  EndCopyGroup();
  WaitForCopies<0>();
  if constexpr (!kFault) __syncwarp();
  reinterpret_cast<float4*>(to)[threadIdx.x] = values[kWarp - 1 - threadIdx.x];
}

// to (32, 32) = the transpose of from; a column of `tile` lies in one bank, or in all of them.
template <bool kFault>
__global__ void TransposeKernel(const float* from, float* to) {
  __shared__ float tile[kWarp][kWarp + (kFault ? 0 : 1)];
  for (int i = 0; i < kWarp; ++i) tile[i][threadIdx.x] = from[i * kWarp + threadIdx.x];
  __syncwarp();
  for (int i = 0; i < kWarp; ++i) to[i * kWarp + threadIdx.x] = tile[threadIdx.x][i];
}

// Sums of the rows of a matrix (32, 32), or of its columns; a lane a sum.
template <bool kFault>
__global__ void SumsKernel(const float* from, float* to) {
  float sum = 0;
  for (int i = 0; i < kWarp; ++i) {
    sum += kFault ? from[threadIdx.x * kWarp + i] : from[i * kWarp + threadIdx.x];
  }
  to[threadIdx.x] = sum;
}

// The neighbour's value, which the last thread has not.
template <bool kFault>
__global__ void NeighboursKernel(const float* from, float* to) {
  const int last = kThreads - (kFault ? 0 : 1);
  to[threadIdx.x] = threadIdx.x < last ? from[threadIdx.x + 1] : 0.0f;
}

template <bool kFault>
__global__ void SharedNeighboursKernel(const float* from, float* to) {
  __shared__ float values[kThreads];
  values[threadIdx.x] = from[threadIdx.x];
  __syncthreads();
  const int last = kThreads - (kFault ? 0 : 1);
  to[threadIdx.x] = threadIdx.x < last ? values[threadIdx.x + 1] : 0.0f;
}

// The same of memory that the launch gives.
template <bool kFault>
__global__ void DynamicNeighboursKernel(const float* from, float* to) {
  auto* const values = reinterpret_cast<float*>(DynamicShared());
  values[threadIdx.x + (kFault ? 1 : 0)] = from[threadIdx.x];
  __syncthreads();
  to[threadIdx.x] = values[threadIdx.x];
}

// Two values at once, from an odd place or an even one.
template <bool kFault>
__global__ void PairsKernel(const float* from, float* to) {
  const auto* pairs = reinterpret_cast<const float2*>(from + (kFault ? 1 : 2));
  reinterpret_cast<float2*>(to)[threadIdx.x] = pairs[threadIdx.x];
}

// The sum over a warp, of which half is not there.
template <bool kFault>
__global__ void HalfWarpKernel(const float* from, float* to) {
  if (kFault && threadIdx.x % kWarp >= 16) return;
  float value = from[threadIdx.x];
  value += __shfl_xor_sync(~0u, value, 1);
  to[threadIdx.x] = value;
}

// A barrier that half of a warp goes past on its way to another one.
template <bool kFault>
__global__ void BarriersKernel(const float* from, float* to) {
  if (kFault && threadIdx.x % 2 == 0) {
    __syncwarp();
  } else {
    __syncthreads();
  }
  to[threadIdx.x] = from[threadIdx.x];
}

// Adds to what the kernel before has stored, of which nothing is there before it has waited.
template <bool kFault>
__global__ void ReadsBeforeKernel(const float* from, float* to) {
  const float value = from[threadIdx.x];  // nobody writes it
  if constexpr (!kFault) BeginKernel();
  const float before = to[threadIdx.x];
  if constexpr (kFault) BeginKernel();
  to[threadIdx.x] = before + value;
}

// Stores where the kernel before may still read.
template <bool kFault>
__global__ void StoresBeforeKernel(const float* from, float* to) {
  if constexpr (kFault) to[kThreads + threadIdx.x] = from[threadIdx.x];
  BeginKernel();
  if constexpr (!kFault) to[kThreads + threadIdx.x] = from[threadIdx.x];
}

// Of two blocks one does not wait, which the kernel behind it would have to know.
template <bool kFault>
__global__ void NeverWaitsKernel(const float* from, float* to) {
  if (kFault && blockIdx.x == 1) return;
  BeginKernel();
  if (blockIdx.x == 0) to[threadIdx.x] = from[threadIdx.x];
}

using PlantedKernel = void (*)(const float*, float*);
struct Entry {
  Planted planted;
  PlantedKernel right, wrong;
  int blocks, threads, shared_bytes;
};
constexpr int kPieces = 2 * kWarp * 16;
const Entry kEntries[] = {
    {Planted::kReverse, ReverseKernel<false>, ReverseKernel<true>, 1, kThreads, 0},
    {Planted::kReverseWarps, ReverseWarpsKernel<false>, ReverseWarpsKernel<true>, 1, kThreads, 0},
    {Planted::kRounds, RoundsKernel<false>, RoundsKernel<true>, 1, kThreads, 0},
    {Planted::kHalves, HalvesKernel<false>, HalvesKernel<true>, 2, kThreads, 0},
    {Planted::kFragments, FragmentsKernel<false>, FragmentsKernel<true>, 1, kWarp, 0},
    {Planted::kCopies, CopiesKernel<false>, CopiesKernel<true>, 1, kWarp, kPieces},
    {Planted::kOthersCopies, OthersCopiesKernel<false>, OthersCopiesKernel<true>, 1, kWarp,
     kPieces},
    {Planted::kTranspose, TransposeKernel<false>, TransposeKernel<true>, 1, kWarp, 0},
    {Planted::kSums, SumsKernel<false>, SumsKernel<true>, 1, kWarp, 0},
    {Planted::kNeighbours, NeighboursKernel<false>, NeighboursKernel<true>, 1, kThreads, 0},
    {Planted::kSharedNeighbours, SharedNeighboursKernel<false>, SharedNeighboursKernel<true>, 1,
     kThreads, 0},
    {Planted::kDynamicNeighbours, DynamicNeighboursKernel<false>, DynamicNeighboursKernel<true>, 1,
     kThreads, kThreads * 4},
    {Planted::kPairs, PairsKernel<false>, PairsKernel<true>, 1, kWarp, 0},
    {Planted::kHalfWarp, HalfWarpKernel<false>, HalfWarpKernel<true>, 1, kThreads, 0},
    {Planted::kBarriers, BarriersKernel<false>, BarriersKernel<true>, 1, kWarp, 0},
    {Planted::kReadsBefore, ReadsBeforeKernel<false>, ReadsBeforeKernel<true>, 1, kThreads, 0},
    {Planted::kStoresBefore, StoresBeforeKernel<false>, StoresBeforeKernel<true>, 1, kThreads, 0},
    {Planted::kNeverWaits, NeverWaitsKernel<false>, NeverWaitsKernel<true>, 2, kThreads, 0},
};

}  // namespace

cudaError_t LaunchPlanted(const Queue& queue, Planted planted, bool fault, const float* from,
                          float* to) {
  for (const Entry& entry : kEntries) {
    if (entry.planted != planted) continue;
    return LaunchShared(queue, fault ? entry.wrong : entry.right, Grid(entry.blocks), entry.threads,
                        entry.shared_bytes, from, to);
  }
  return cudaErrorInvalidValue;
}

}  // namespace lm::cuda
