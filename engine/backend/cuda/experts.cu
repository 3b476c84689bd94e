// Routing on the device (expert_routes.h): who is chosen, and the slots of each expert, so that
// nothing of a mixture comes to the host.
//
// The sums and choices are made in RouteRows' order. exp is made in F64 and rounded once, which is
// the nearest float but in one case of many millions.
#include <algorithm>
#include <cmath>

#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/warp_matrix.cuh"

namespace lm::cuda {
namespace {

constexpr int kMostThreads = 1024;
constexpr int kStaged = 1024;  // choices that GroupSlotsKernel looks at at a time

__device__ float Exp(float x) { return static_cast<float>(exp(static_cast<double>(x))); }

__device__ float Gate(RouterGate gate, float logit) {
  if (gate == RouterGate::kSigmoid) return 1.0f / (1.0f + Exp(-logit));
  if (gate != RouterGate::kSqrtSoftplus) return logit;
  const float softplus =
      logit > 20.0f ? logit : static_cast<float>(log1p(exp(static_cast<double>(logit))));
  return sqrtf(softplus);
}

// An expert and its score: the greater score, of two that are equal the lower expert.
struct Candidate {
  float score;
  int32_t expert;  // -1: none

  __device__ void Take(float other, int32_t other_expert) {
    if (other_expert < 0) return;
    if (expert < 0 || other > score || (other == score && other_expert < expert)) {
      score = other;
      expert = other_expert;
    }
  }
};

__device__ float MaxOfWarp(float value) {
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    value = fmaxf(value, __shfl_xor_sync(~0u, value, apart));
  }
  return value;
}

// p = softmax(p) of `count` values, all lanes together: those of a lane are lane, lane + 32, ...
__device__ void Softmax(int lane, int count, float* p) {
  float max = -INFINITY;
  for (int i = lane; i < count; i += kWarp) max = fmaxf(max, p[i]);
  max = MaxOfWarp(max);
  for (int i = lane; i < count; i += kWarp) p[i] = Exp(p[i] - max);
  __syncwarp();
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += p[i];
  __syncwarp();
  for (int i = lane; i < count; i += kWarp) p[i] /= sum;
  __syncwarp();
}

// Closes all groups but the best: their experts are no candidates.
__device__ void CloseGroups(const RouterRule& router, int lane, float* scores, float* sums) {
  const int size = router.experts / router.groups;
  for (int g = lane; g < router.groups; g += kWarp) {
    float best = -INFINITY, second = -INFINITY;
    for (int i = g * size; i < (g + 1) * size; ++i) {
      second = fmaxf(second, fminf(best, scores[i]));
      best = fmaxf(best, scores[i]);
    }
    sums[g] = size > 1 ? best + second : best;
  }
  __syncwarp();
  for (int g = lane; g < router.groups; g += kWarp) {
    int before = 0;
    for (int h = 0; h < router.groups; ++h) {
      before += sums[h] > sums[g] || (sums[h] == sums[g] && h < g);
    }
    if (before < router.chosen_groups) continue;
    for (int i = g * size; i < (g + 1) * size; ++i) scores[i] = -INFINITY;
  }
  __syncwarp();
}

// chosen[j] = the j-th of the greatest scores. What is chosen becomes a NaN.
__device__ void ChooseBest(const RouterRule& router, int lane, float* scores, int32_t* chosen) {
  for (int j = 0; j < router.chosen; ++j) {
    Candidate best = {0, -1};
    for (int e = lane; e < router.experts; e += kWarp) {
      if (scores[e] == scores[e]) best.Take(scores[e], e);
    }
    for (int apart = kWarp / 2; apart > 0; apart /= 2) {
      const float score = __shfl_xor_sync(~0u, best.score, apart);
      const int32_t expert = __shfl_xor_sync(~0u, best.expert, apart);
      best.Take(score, expert);
    }
    if (best.expert % kWarp == lane) {
      scores[best.expert] = NAN;
      chosen[j] = best.expert;
    }
  }
  __syncwarp();
}

// The experts of a row, into slots.slots, and their weights: a warp a row.
__global__ __launch_bounds__(kWarp) void ChooseExpertsKernel(Matrix logits, RouterRule router,
                                                             SlotTables slots) {
  BeginKernel();
  auto* const p = reinterpret_cast<float*>(DynamicShared());
  float* const scores = p + router.experts;
  float* const sums = scores + router.experts;  // of groups; then the weights of the chosen
  const int lane = threadIdx.x;
  const int64_t row = blockIdx.x;
  int32_t* const chosen = slots.slots + row * router.chosen;
  float* const weights = slots.weights + row * router.chosen;
  bool bad = false;
  for (int e = lane; e < router.experts; e += kWarp) {
    p[e] = logits.data[row * logits.stride + e];
    bad = bad || p[e] != p[e];
  }
  if (__reduce_max_sync(~0u, bad ? 1u : 0u) != 0) {
    for (int j = lane; j < router.chosen; j += kWarp) {
      chosen[j] = j;
      weights[j] = NAN;
    }
    return;
  }
  __syncwarp();
  if (router.gate == RouterGate::kSoftmax) Softmax(lane, router.experts, p);
  for (int e = lane; e < router.experts; e += kWarp) {
    p[e] = Gate(router.gate, p[e]);
    const float score = router.bias == nullptr ? p[e] : p[e] + router.bias[e];
    scores[e] = score == score ? score : -INFINITY;
  }
  __syncwarp();
  if (router.given != nullptr) {
    for (int j = lane; j < router.chosen; j += kWarp) {
      chosen[j] = router.given[row * router.chosen + j];
    }
    __syncwarp();
  } else {
    if (router.groups > 1) CloseGroups(router, lane, scores, sums);
    ChooseBest(router, lane, scores, chosen);
  }
  float* const own = sums;
  for (int j = lane; j < router.chosen; j += kWarp) own[j] = p[chosen[j]];
  __syncwarp();
  if (router.gate == RouterGate::kSoftmaxOfChosen) Softmax(lane, router.chosen, own);
  float divisor = 1;
  if (router.normalised) {
    constexpr float kLeast = 1.0f / (1 << 14);
    float sum = 0;
    for (int j = 0; j < router.chosen; ++j) sum += own[j];
    divisor = sum < kLeast ? kLeast : sum;
  }
  for (int j = lane; j < router.chosen; j += kWarp) {
    float weight = own[j];
    if (router.normalised) weight /= divisor;
    weight *= router.scale;
    weights[j] = router.scales == nullptr ? weight : weight * router.scales[chosen[j]];
  }
}

// Numbers the slots and cuts them into groups, in one thread block, a thread an expert (or
// several). slots.slots comes with the experts and goes with their slots.
__global__ __launch_bounds__(kMostThreads) void GroupSlotsKernel(SlotTables slots) {
  BeginKernel();
  auto* const staged = reinterpret_cast<int32_t*>(DynamicShared());
  int32_t* const counts = staged + kStaged;
  int32_t* const begins = counts + slots.experts;
  int32_t* const groups = begins + slots.experts;
  const int threads = blockDim.x, thread = threadIdx.x;
  const int num_slots = static_cast<int>(slots.num_rows * slots.chosen);
  const int size = slots.group_slots;
  auto groups_of = [size](int count) { return (count + size - 1) / size; };

  // Which of its expert's a choice is (in `places` for now), and how many an expert has.
  for (int e = thread; e < slots.experts; e += threads) counts[e] = 0;
  for (int first = 0; first < num_slots; first += kStaged) {
    const int count = min(kStaged, num_slots - first);
    __syncthreads();
    for (int i = thread; i < count; i += threads) staged[i] = slots.slots[first + i];
    __syncthreads();
    for (int e = thread; e < slots.experts; e += threads) {
      int own = counts[e];
      for (int i = 0; i < count; ++i) {
        if (staged[i] == e) slots.places[first + i] = own++;
      }
      counts[e] = own;
    }
  }
  __syncthreads();
  // Where an expert's slots and groups begin.
  for (int e = thread; e < slots.experts; e += threads) {
    int begin = 0, group = 0;
    for (int before = 0; before < e; ++before) {
      begin += counts[before];
      group += groups_of(counts[before]);
    }
    begins[e] = slots.begin[e] = begin;
    groups[e] = group;
    const int count = counts[e];
    for (int i = 0; i < count; i += size) {
      slots.groups[group++] = {e, begin + i, min(size, count - i)};
    }
    if (e + 1 < slots.experts) continue;
    slots.begin[slots.experts] = num_slots;
    for (; group < slots.num_groups; ++group) slots.groups[group] = {0, 0, 0};
  }
  __syncthreads();
  for (int i = thread; i < num_slots; i += threads) {
    const int slot = begins[slots.slots[i]] + slots.places[i];
    slots.rows[slot] = i / slots.chosen;
    slots.slots[i] = slot;
  }
  __syncthreads();
  for (int e = thread; e < slots.experts; e += threads) {
    for (int i = 0; i < counts[e]; ++i) slots.places[begins[e] + i] = groups[e] * size + i;
  }
}

constexpr int kThreads = 256;
constexpr int kColsPerBlock = 1024;

__global__ void MoveWeightsKernel(SlotTables slots, Matrix out) {
  BeginKernel();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= slots.num_rows * slots.chosen) return;
  out.data[slots.slots[i] * out.stride] = slots.weights[i];
  slots.weights[i] = 1.0f;
}

__global__ void CombineSlotsKernel(Matrix y, SlotTables slots, Matrix out) {
  BeginKernel();
  const int64_t row = blockIdx.x, begin = int64_t{blockIdx.y} * kColsPerBlock;
  const int64_t end = min(begin + kColsPerBlock, out.cols);
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    float sum = 0;
    for (int64_t j = row * slots.chosen; j < (row + 1) * slots.chosen; ++j) {
      sum = fmaf(slots.weights[j], y.data[slots.slots[j] * y.stride + i], sum);
    }
    out.data[row * out.stride + i] = sum;
  }
}

}  // namespace

cudaError_t Route(const Queue& queue, Matrix logits, const RouterRule& router,
                  const SlotTables& slots) {
  const int numbers = 2 * router.experts + std::max(router.groups, router.chosen);
  const cudaError_t error =
      LaunchShared(queue, ChooseExpertsKernel, Grid(logits.rows), kWarp,
                   numbers * static_cast<int>(sizeof(float)), logits, router, slots);
  if (error != cudaSuccess) return error;
  const int threads =
      std::min(static_cast<int>(DivideUp(router.experts, kWarp)) * kWarp, kMostThreads);
  return LaunchShared(queue, GroupSlotsKernel, Grid(1), threads,
                      (kStaged + 3 * router.experts) * static_cast<int>(sizeof(int32_t)), slots);
}

cudaError_t MoveWeights(const Queue& queue, const SlotTables& slots, Matrix out) {
  return Launch(queue, MoveWeightsKernel, Grid(DivideUp(out.rows, kThreads)), kThreads, slots, out);
}

cudaError_t CombineSlots(const Queue& queue, Matrix y, const SlotTables& slots, Matrix out) {
  return Launch(queue, CombineSlotsKernel, Grid(out.rows, DivideUp(out.cols, kColsPerBlock)),
                kThreads, y, slots, out);
}

}  // namespace lm::cuda
