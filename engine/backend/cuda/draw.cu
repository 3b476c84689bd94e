// Drawing a token as draw_law.h says: weights are integers, so neither the order of their sums nor
// that of atomic operations shows. Of each row
//   1. parts weigh their tokens, and count them by buckets of weights, where top_k or top_p cuts
//   2. parts find the bucket where they cut, add up what is surely kept, and list what may be
//   3. one thread block finds the last key that is kept, the part that is drawn, and its token
#include "engine/backend/cuda/sampled_row.cuh"

namespace lm::cuda {
namespace {

// As CUDA's atomics have it.
__device__ __forceinline__ void AddTo(uint64_t* sum, uint64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(value));
}

__device__ __forceinline__ bool Cuts(const SampledRow& row) {
  return row.top_k > 0 || row.top_p < 1;
}

__device__ __forceinline__ uint64_t OverWarp(uint64_t value) {
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    value += __shfl_xor_sync(~0u, static_cast<unsigned long long>(value), apart);
  }
  return value;
}

__device__ __forceinline__ void AddOfWarp(uint64_t value, uint64_t* shared) {
  value = OverWarp(value);
  if (threadIdx.x % kWarp == 0) AddTo(shared, value);
}

__device__ __forceinline__ uint64_t WeightIn(const SampledRow& row, double logit, double greatest) {
  return WeightOf(BelowGreatest(logit, greatest, row.inverse_temperature));
}

__global__ __launch_bounds__(kSampleThreads) void WeighKernel(SampledRows rows,
                                                              const double* greatest,
                                                              const PickedToken* picked,
                                                              DrawState* states) {
  __shared__ uint32_t adjusted[kMostPartTokens / 32];
  __shared__ uint64_t sums[kNumBuckets];
  __shared__ uint32_t counts[kNumBuckets];
  __shared__ uint64_t kept;
  LetNextKernelBegin();
  const SampledPart part = PartOf(rows, blockIdx.x, static_cast<int>(blockIdx.y));
  MarkAdjusted(part, adjusted);
  const bool cuts = Cuts(part.row);
  const int first = static_cast<int>(threadIdx.x);
  if (cuts) {
    for (int i = first; i < kNumBuckets; i += kSampleThreads) sums[i] = counts[i] = 0;
  }
  if (first == 0) kept = 0;
  WaitForKernelBefore();
  if (picked[blockIdx.x].token < 0) return;
  const double most = greatest[blockIdx.x];
  __syncthreads();
  uint64_t own = 0;
  ForTokensOf(
      part, adjusted, [](float) {},
      [&](int, double logit) {
        const uint64_t weight = WeightIn(part.row, logit, most);
        if (weight == 0) return;
        if (cuts) {
          const int bucket = BucketOf(weight);
          AddTo(&sums[bucket], weight);
          atomicAdd(&counts[bucket], 1u);
        } else if (weight >= part.row.least_weight) {
          own += weight;
        }
      });
  if (!cuts) AddOfWarp(own, &kept);
  __syncthreads();
  DrawState& state = states[blockIdx.x];
  if (!cuts) {
    if (first == 0) state.part_weights[blockIdx.y] = kept;
    return;
  }
  for (int i = first; i < kNumBuckets; i += kSampleThreads) {
    if (counts[i] == 0) continue;
    AddTo(&state.sums[i], sums[i]);
    atomicAdd(&state.counts[i], counts[i]);
  }
}

// Where a row is cut.
struct Cut {
  int bucket;       // the last key that is kept is in it; -1: all are
  uint64_t needed;  // of its keys, for top_p
  uint32_t to_list;
  bool by_count;  // top_k cuts: what is above is listed, too, and `needed` is not known yet
};

// By one thread. Totals are of runs of kRun buckets.
constexpr int kRun = 32;
constexpr int kNumRuns = (kNumBuckets + kRun - 1) / kRun;
__device__ Cut FindCut(const SampledRow& row, const uint64_t* sums, const uint32_t* counts,
                       const uint64_t* run_sums, const uint32_t* run_counts) {
  uint64_t total = 0, tokens = 0;
  for (int run = 0; run < kNumRuns; ++run) {
    total += run_sums[run];
    tokens += run_counts[run];
  }
  Cut cut = {-1, 0, 0, row.top_k > 0 && static_cast<uint64_t>(row.top_k) < tokens};
  if (!cut.by_count && row.top_p >= 1) return cut;
  const uint64_t wanted =
      cut.by_count ? static_cast<uint64_t>(row.top_k) : ShareOf(row.top_p, total);
  auto of_run = [&](int run) { return cut.by_count ? run_counts[run] : run_sums[run]; };
  auto of_bucket = [&](int bucket) { return cut.by_count ? counts[bucket] : sums[bucket]; };
  uint64_t above = 0;
  int run = kNumRuns - 1;
  for (; above + of_run(run) < wanted; --run) above += of_run(run);
  int bucket = run * kRun + kRun - 1;
  if (bucket > kNumBuckets - 1) bucket = kNumBuckets - 1;
  for (; above + of_bucket(bucket) < wanted; --bucket) above += of_bucket(bucket);
  cut.bucket = bucket;
  cut.needed = wanted - above;
  cut.to_list = counts[bucket];
  if (cut.by_count) cut.to_list += static_cast<uint32_t>(above);
  return cut;
}

__global__ __launch_bounds__(kSampleThreads) void ListKernel(SampledRows rows,
                                                             const double* greatest,
                                                             const PickedToken* picked,
                                                             DrawState* states) {
  __shared__ uint32_t adjusted[kMostPartTokens / 32];
  __shared__ uint64_t sums[kNumBuckets];
  __shared__ uint32_t counts[kNumBuckets];
  __shared__ uint64_t run_sums[kNumRuns];
  __shared__ uint32_t run_counts[kNumRuns];
  __shared__ uint64_t kept;
  __shared__ Cut shared_cut;
  LetNextKernelBegin();
  const SampledPart part = PartOf(rows, blockIdx.x, static_cast<int>(blockIdx.y));
  MarkAdjusted(part, adjusted);
  WaitForKernelBefore();
  if (!Cuts(part.row) || picked[blockIdx.x].token < 0) return;
  DrawState& state = states[blockIdx.x];
  const double most = greatest[blockIdx.x];
  const int first = static_cast<int>(threadIdx.x);
  for (int i = first; i < kNumBuckets; i += kSampleThreads) {
    sums[i] = state.sums[i];
    counts[i] = state.counts[i];
  }
  __syncthreads();
  if (first < kNumRuns) {
    uint64_t sum = 0;
    uint32_t count = 0;
    for (int i = first * kRun; i < kNumBuckets && i < first * kRun + kRun; ++i) {
      sum += sums[i];
      count += counts[i];
    }
    run_sums[first] = sum;
    run_counts[first] = count;
  }
  __syncthreads();
  if (first == 0) {
    kept = 0;
    shared_cut = FindCut(part.row, sums, counts, run_sums, run_counts);
    if (blockIdx.y == 0) {
      state.needed = shared_cut.needed;
      state.to_list = shared_cut.to_list;
      state.cuts_by_count = shared_cut.by_count ? 1 : 0;
    }
  }
  __syncthreads();
  const Cut cut = shared_cut;
  if (cut.to_list > kMostListed) return;
  uint64_t own = 0;
  ForTokensOf(
      part, adjusted, [](float) {},
      [&](int token, double logit) {
        const uint64_t weight = WeightIn(part.row, logit, most);
        if (weight == 0) return;
        const int bucket = BucketOf(weight);
        if (bucket == cut.bucket || (cut.by_count && bucket > cut.bucket)) {
          state.listed[atomicAdd(&state.num_listed, 1u)] = DrawKey(weight, token);
        } else if (bucket > cut.bucket && weight >= part.row.least_weight) {
          own += weight;
        }
      });
  AddOfWarp(own, &kept);
  __syncthreads();
  if (first == 0) state.part_weights[blockIdx.y] = kept;
}

// Sorts the keys, greater ones first: bitonic. `count`: a power of two.
__device__ void SortKeys(uint64_t* keys, int count) {
  for (int length = 2; length <= count; length *= 2) {
    for (int apart = length / 2; apart > 0; apart /= 2) {
      for (int i = static_cast<int>(threadIdx.x); i < count / 2; i += kSampleThreads) {
        const int low = i / apart * 2 * apart + i % apart, high = low + apart;
        const uint64_t a = keys[low], b = keys[high];
        if ((a < b) == ((low & length) == 0)) {
          keys[low] = b;
          keys[high] = a;
        }
      }
      __syncthreads();
    }
  }
}

// The sum of the values of the threads before. `scan` is shared, for a value of each.
__device__ uint64_t SumBefore(uint64_t value, uint64_t* scan) {
  const int own = static_cast<int>(threadIdx.x);
  scan[own] = value;
  __syncthreads();
  for (int apart = 1; apart < kSampleThreads; apart *= 2) {
    const uint64_t other = own >= apart ? scan[own - apart] : 0;
    __syncthreads();
    scan[own] += other;
    __syncthreads();
  }
  return scan[own] - value;
}

// The place of the first of the greatest `count` keys at which their sum reaches `needed`, or
// top_p's share of them where `by_count`. By all threads; `found` is shared.
__device__ int LastNeeded(const uint64_t* keys, int count, bool by_count, double top_p,
                          uint64_t needed, uint64_t* scan, int* found) {
  constexpr int kKeys = kMostListed / kSampleThreads;
  const int first = static_cast<int>(threadIdx.x) * kKeys;
  uint64_t own = 0;
  for (int i = first; i < first + kKeys && i < count; ++i) own += WeightOfKey(keys[i]);
  uint64_t sum = SumBefore(own, scan);
  if (by_count) needed = ShareOf(top_p, scan[kSampleThreads - 1]);
  for (int i = first; i < first + kKeys && i < count; ++i) {
    const uint64_t before = sum;
    sum += WeightOfKey(keys[i]);
    if (before < needed && needed <= sum) *found = i;
  }
  __syncthreads();
  return *found;
}

__global__ __launch_bounds__(kSampleThreads) void DrawKernel(SampledRows rows,
                                                             const double* greatest,
                                                             DrawState* states,
                                                             PickedToken* picked) {
  __shared__ uint32_t adjusted[kMostPartTokens / 32];
  __shared__ uint64_t keys[kMostListed];
  __shared__ uint64_t scan[kSampleThreads];
  __shared__ uint64_t part_weights[kMostParts];
  __shared__ int found;
  __shared__ int drawn_part;
  __shared__ uint64_t drawn_place;
  BeginKernel();
  DrawState& state = states[blockIdx.x];
  const SampledRow row = rows.rows[blockIdx.x];
  const PickedToken pick = picked[blockIdx.x];
  const int own = static_cast<int>(threadIdx.x);
  if (pick.token < 0) return;
  const bool cuts = Cuts(row);
  if (cuts && state.to_list > kMostListed) {
    __syncthreads();
    if (own == 0) picked[blockIdx.x].token = -1;
    return;
  }
  if (own < rows.num_parts) part_weights[own] = state.part_weights[own];
  uint64_t least = row.least_weight << kTokenBits;
  const int listed = cuts ? static_cast<int>(state.to_list) : 0;
  if (listed > 0) {
    int room = 1;
    while (room < listed) room *= 2;
    for (int i = own; i < room; i += kSampleThreads) keys[i] = i < listed ? state.listed[i] : 0;
    __syncthreads();
    SortKeys(keys, room);
    const bool by_count = state.cuts_by_count != 0;
    int last = by_count ? static_cast<int>(row.top_k) - 1 : listed - 1;
    if (row.top_p < 1) {
      last = LastNeeded(keys, last + 1, by_count, row.top_p, state.needed, scan, &found);
    }
    least = least > keys[last] ? least : keys[last];
    const int cols = static_cast<int>(rows.logits.cols);
    const int of_part = (cols + rows.num_parts - 1) / rows.num_parts;
    for (int i = own; i <= last; i += kSampleThreads) {
      if (keys[i] < least) continue;
      AddTo(&part_weights[TokenOfKey(keys[i]) / of_part], WeightOfKey(keys[i]));
    }
  }
  __syncthreads();
  if (own == 0) {
    uint64_t total = 0;
    for (int i = 0; i < rows.num_parts; ++i) total += part_weights[i];
    uint64_t place = DrawnPlace(row.random, total);
    int part = 0;
    for (; place >= part_weights[part]; ++part) place -= part_weights[part];
    drawn_part = part;
    drawn_place = place;
  }
  __syncthreads();
  const SampledPart part = PartOf(rows, blockIdx.x, drawn_part);
  MarkAdjusted(part, adjusted);
  __syncthreads();
  const double most = greatest[blockIdx.x];
  const int of_thread = (part.end - part.begin + kSampleThreads - 1) / kSampleThreads;
  const int first = part.begin + own * of_thread;
  const int end = first + of_thread < part.end ? first + of_thread : part.end;
  auto kept = [&](int i) -> uint64_t {
    if (part.mask != nullptr && (part.mask[i / 64] >> (i % 64) & 1) == 0) return 0;
    const uint64_t weight = WeightIn(row, AdjustedOf(part, adjusted, i, part.logits[i]), most);
    return weight > 0 && DrawKey(weight, i) >= least ? weight : 0;
  };
  uint64_t sum = 0;
  for (int i = first; i < end; ++i) sum += kept(i);
  const uint64_t before = SumBefore(sum, scan);
  const uint64_t place = drawn_place;
  if (place < before || place >= before + sum) return;
  uint64_t rest = place - before;
  int token = first;
  for (;; ++token) {
    const uint64_t weight = kept(token);
    if (rest < weight) break;
    rest -= weight;
  }
  picked[blockIdx.x] = {token, token == pick.token ? pick.margin : 0.0f};
}

}  // namespace

cudaError_t DrawTokens(const Queue& queue, const SampledRows& rows, int64_t count,
                       const double* greatest, DrawState* states, PickedToken* picked) {
  const dim3 parts = Grid(count, rows.num_parts);
  cudaError_t error =
      Launch(queue, WeighKernel, parts, kSampleThreads, rows, greatest, picked, states);
  if (error != cudaSuccess) return error;
  error = Launch(queue, ListKernel, parts, kSampleThreads, rows, greatest, picked, states);
  if (error != cudaSuccess) return error;
  return Launch(queue, DrawKernel, Grid(count), kSampleThreads, rows, greatest, states, picked);
}

}  // namespace lm::cuda
