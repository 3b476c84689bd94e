// Rows that are keys and values at once (backend.h, RowLayer): pooled, stored, scored and attended
// to.
#include <cmath>

#include "engine/backend/cuda/chunk_max.cuh"
#include "engine/backend/cuda/kv_value.cuh"
#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/op_arithmetic.cuh"

namespace lm::cuda {
namespace {

constexpr int kThreads = kChunk;
// Values a thread: enough for kMaxHeadDim of them.
constexpr int kValues = 3;

__device__ float* RowAt(const RowCache& layer, int64_t block, int64_t token) {
  return layer.data + block * layer.block_stride + token / layer.every * layer.dim;
}

// Row r of a sequence.
__device__ const float* RowOf(const RowCache& layer, const Sequence& sequence, int64_t r) {
  const int64_t last = (r + 1) * layer.every - 1;
  const int64_t block = layer.blocks[sequence.first_block + last / kBlockTokens];
  return RowAt(layer, block, last % kBlockTokens);
}

// One column of a part of a state.
__device__ SoftmaxPartial LoadPart(const float* at, int64_t dim) {
  return {at[0], at[dim], at[2 * dim]};
}
__device__ void StorePart(const SoftmaxPartial& part, int64_t dim, float* at) {
  at[0] = part.max;
  at[dim] = part.sum;
  at[2 * dim] = part.value;
}

// A thread has one column of a sequence, for all tokens of the step.
__global__ void PoolRowsKernel(PooledRows in, StepRows step, States states, Matrix out) {
  BeginKernel();
  const int64_t dim = out.cols;
  const int64_t c = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (c >= dim) return;
  const Sequence sequence = step.sequences[blockIdx.x];
  float* state = states.data + sequence.state * states.slot_stride + c;
  const SoftmaxPartial none = {-INFINITY, 0.0f, 0.0f};
  SoftmaxPartial before = none, own = none, rest = none;
  if (sequence.first_position > 0) {
    before = LoadPart(state, dim);
    own = in.overlaps ? LoadPart(state + 3 * dim, dim) : before;
    if (in.overlaps) rest = LoadPart(state + 6 * dim, dim);
  }
  for (int64_t i = 0; i < sequence.num_tokens; ++i) {
    const int64_t position = sequence.first_position + i, place = position % in.every;
    const int64_t row = sequence.first_row + i;
    if (place == 0) {
      before = position == 0 ? none : own;
      own = rest = none;
    }
    auto add = [&](int64_t col, SoftmaxPartial* part) {
      const float score = in.scores.data[row * in.scores.stride + col] +
                          in.places.data[place * in.places.stride + col];
      MergePartial({score, 1.0f, in.values.data[row * in.values.stride + col]}, part);
    };
    add(c, &own);
    if (in.overlaps) add(dim + c, &rest);
    SoftmaxPartial all = own;
    if (in.overlaps) {
      all = before;
      MergePartial(rest, &all);
    }
    out.data[row * out.stride + c] = place == in.every - 1 ? all.value / all.sum : 0.0f;
  }
  StorePart(in.overlaps ? before : own, dim, state);
  if (!in.overlaps) return;
  StorePart(own, dim, state + 3 * dim);
  StorePart(rest, dim, state + 6 * dim);
}

__global__ void StoreRowsKernel(Matrix x, StepRows step, const int64_t* slots, RowCache layer) {
  BeginKernel();
  const int64_t t = blockIdx.x;
  const Sequence sequence = step.sequences[step.sequence_of_row[t]];
  const int64_t position = sequence.first_position + (t - sequence.first_row);
  if ((position + 1) % layer.every != 0) return;
  float* row = RowAt(layer, slots[t] / kBlockTokens, slots[t] % kBlockTokens);
  for (int64_t i = threadIdx.x; i < layer.dim; i += kThreads) row[i] = x.data[t * x.stride + i];
}

// A thread makes one score.
__global__ void ScoreRowsKernel(Matrix q, Matrix weights, StepRows step, RowCache layer,
                                Matrix out) {
  BeginKernel();
  const int64_t t = blockIdx.x;
  const int64_t r = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  const Sequence sequence = step.sequences[step.sequence_of_row[t]];
  const int64_t position = sequence.first_position + (t - sequence.first_row);
  if (r >= (position + 1) / layer.every) return;
  const float* row = RowOf(layer, sequence, r);
  float sum = 0;
  for (int64_t h = 0; h < weights.cols; ++h) {
    const float* query = q.data + t * q.stride + h * layer.dim;
    float dot = 0;
    for (int64_t i = 0; i < layer.dim; ++i) dot = fmaf(query[i], row[i], dot);
    sum = fmaf(weights.data[t * weights.stride + h], fmaxf(dot, 0.0f), sum);
  }
  out.data[t * out.stride + r] = sum;
}

// One head of one token a thread block: thread j has the chunk's row j, then a value of the head,
// or up to three, as in attention.cu.
__global__ void AttendRowsKernel(Matrix q, StepRows step, RowScores in, Matrix out) {
  __shared__ float weights[kThreads];
  __shared__ const float* rows[kThreads];
  __shared__ float scratch[kThreads / kWarp];
  BeginKernel();

  const int64_t t = blockIdx.x, head = blockIdx.y, dim = in.near.dim;
  const Sequence sequence = step.sequences[step.sequence_of_row[t]];
  const int64_t position = sequence.first_position + (t - sequence.first_row);
  const SeenRange seen = SeenBy(in.window, position, position + 1);
  const int64_t near = seen.end - seen.first;
  const int32_t* chosen = in.chosen == nullptr ? nullptr : in.chosen + t * in.chosen_stride;
  int64_t far = in.far.data == nullptr ? 0 : (position + 1) / in.far.every;
  if (chosen != nullptr) far = min(far, in.most_chosen);
  const float* query = q.data + t * q.stride + head * dim;

  SoftmaxPartial totals[kValues] = {};
  for (int64_t begin = 0; begin < near + far; begin += kThreads) {
    const int64_t j = begin + threadIdx.x;
    __syncthreads();  // the chunk before has been read
    float score = -INFINITY;
    if (j < near + far) {
      const int64_t r = j - near;
      const float* row = j < near
                             ? RowOf(in.near, sequence, seen.first + j)
                             : RowOf(in.far, sequence, chosen == nullptr ? r : int64_t{chosen[r]});
      float dot = 0;
      for (int64_t d = 0; d < dim; ++d) dot = fmaf(query[d], row[d], dot);
      score = dot * in.scale;
      rows[threadIdx.x] = row;
    }
    const float max_score = MaxOverChunk(score, scratch);
    weights[threadIdx.x] = expf(score - max_score);
    __syncthreads();
    const int count = static_cast<int>(min(near + far - begin, int64_t{kThreads}));
    for (int k = 0; k < kValues; ++k) {
      const int64_t i = threadIdx.x + int64_t{kThreads} * k;
      if (i >= dim) break;
      SoftmaxPartial chunk = {max_score, 0.0f, 0.0f};
      for (int n = 0; n < count; ++n) AddPosition(weights[n], weights[n], rows[n][i], &chunk);
      if (begin == 0) {
        totals[k] = chunk;
      } else {
        MergePartial(chunk, &totals[k]);
      }
    }
  }
  for (int k = 0; k < kValues; ++k) {
    const int64_t i = threadIdx.x + int64_t{kThreads} * k;
    if (i >= dim) return;
    if (in.sinks != nullptr) MergePartial({in.sinks[head], 1.0f, 0.0f}, &totals[k]);
    out.data[t * out.stride + head * dim + i] = totals[k].value / totals[k].sum;
  }
}

// Divides n groups of n values by their sums + eps: value i of group g at [g * step + i * by].
__device__ void DivideBySums(float* m, int64_t n, int64_t step, int64_t by, float eps) {
  for (int64_t g = 0; g < n; ++g) {
    float sum = eps;
    for (int64_t i = 0; i < n; ++i) sum += m[g * step + i * by];
    for (int64_t i = 0; i < n; ++i) m[g * step + i * by] /= sum;
  }
}

// A thread has a row: few numbers, in the place where they are wanted.
__global__ void BalanceStreamsKernel(Matrix x, int64_t n, int32_t iterations, float eps,
                                     Matrix out) {
  BeginKernel();
  const int64_t t = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (t >= x.rows) return;
  const float* in = x.data + t * x.stride;
  float* m = out.data + t * out.stride;  // [j][s]
  for (int64_t s = 0; s < n; ++s) {
    float max = -INFINITY;
    for (int64_t j = 0; j < n; ++j) max = fmaxf(max, in[s * n + j]);
    for (int64_t j = 0; j < n; ++j) m[j * n + s] = expf(in[s * n + j] - max);
  }
  DivideBySums(m, n, 1, n, 0.0f);
  for (int64_t i = 0; i < n * n; ++i) m[i] += eps;
  for (int32_t i = 0; i < iterations; ++i) {
    if (i > 0) DivideBySums(m, n, 1, n, eps);
    DivideBySums(m, n, n, 1, eps);
  }
}

}  // namespace

cudaError_t PoolRows(const Queue& queue, const PooledRows& inputs, const StepRows& step,
                     const States& states, Matrix out) {
  return Launch(queue, PoolRowsKernel, Grid(step.num_sequences, DivideUp(out.cols, kThreads)),
                kThreads, inputs, step, states, out);
}

cudaError_t StoreRows(const Queue& queue, Matrix x, const StepRows& step, const int64_t* slots,
                      const RowCache& layer) {
  return Launch(queue, StoreRowsKernel, Grid(x.rows), kThreads, x, step, slots, layer);
}

cudaError_t ScoreRows(const Queue& queue, Matrix q, Matrix weights, const StepRows& step,
                      const RowCache& layer, Matrix out) {
  return Launch(queue, ScoreRowsKernel, Grid(q.rows, DivideUp(out.cols, kThreads)), kThreads, q,
                weights, step, layer, out);
}

cudaError_t AttendRows(const Queue& queue, Matrix q, const StepRows& step, const RowScores& scores,
                       Matrix out) {
  return Launch(queue, AttendRowsKernel, Grid(q.rows, q.cols / scores.near.dim), kThreads, q, step,
                scores, out);
}

cudaError_t BalanceStreams(const Queue& queue, Matrix x, int64_t streams, int32_t iterations,
                           float eps, Matrix out) {
  return Launch(queue, BalanceStreamsKernel, Grid(DivideUp(x.rows, kThreads)), kThreads, x, streams,
                iterations, eps, out);
}

}  // namespace lm::cuda
