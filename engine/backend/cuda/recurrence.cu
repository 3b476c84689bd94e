// Ops with a state of fixed size for each sequence (backend.h, CausalConv and DeltaRule), in the
// orders of the reference.
#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/op_arithmetic.cuh"

namespace lm::cuda {
namespace {

constexpr int kThreads = 256;

// One channel's inputs in a sequence: those of the step in x, the ones before it in its state.
struct ChannelInputs {
  const float* x;      // of the sequence's first row
  const float* state;  // the last `before` of them, or null: zeros
  int64_t x_stride;
  int64_t state_stride;
  int64_t before;

  // Input i of the step; the ones before are negative.
  __device__ float at(int64_t i) const {
    if (i >= 0) return x[i * x_stride];
    return state != nullptr ? state[(before + i) * state_stride] : 0.0f;
  }
};

__device__ ChannelInputs InputsOf(const Matrix& x, const Sequence& sequence, const States& states,
                                  int64_t before, int64_t channel) {
  const float* state = states.data + sequence.state * states.slot_stride + channel;
  return {x.data + sequence.first_row * x.stride + channel,
          sequence.first_position > 0 ? state : nullptr, x.stride, x.cols, before};
}

// A thread makes one output.
__global__ void CausalConvKernel(Matrix x, Matrix weight, const float* bias, Activation activation,
                                 StepRows step, States states, Matrix out) {
  BeginKernel();
  const int64_t row = blockIdx.x;
  const int64_t c = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (c >= x.cols) return;
  const Sequence sequence = step.sequences[step.sequence_of_row[row]];
  const int64_t before = weight.rows - 1;
  const ChannelInputs inputs = InputsOf(x, sequence, states, before, c);
  float sum = 0;
  for (int64_t j = 0; j <= before; ++j) {
    sum = fmaf(weight.data[j * weight.stride + c], inputs.at(row - sequence.first_row - before + j),
               sum);
  }
  if (bias != nullptr) sum += bias[c];
  out.data[row * out.stride + c] = Activate(activation, sum);
}

// After all outputs are made. A thread moves one channel of a sequence on: in ascending order, as
// some of the next state may be of this one.
__global__ void KeepInputsKernel(Matrix x, int64_t before, StepRows step, States states) {
  BeginKernel();
  const int64_t c = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (c >= x.cols) return;
  const Sequence sequence = step.sequences[blockIdx.x];
  const ChannelInputs inputs = InputsOf(x, sequence, states, before, c);
  float* state = states.data + sequence.state * states.slot_stride + c;
  for (int64_t i = 0; i < before; ++i) {
    state[i * x.cols] = inputs.at(sequence.num_tokens - before + i);
  }
}

// A thread has one column of the state of one sequence and head, for all tokens of the step: in
// shared memory where it has at most kSharedKeys values, else where it lies.
constexpr int kColumns = kWarp;  // a thread block
constexpr int kSharedKeys = 128;

template <bool kShared>
__global__ void DeltaRuleKernel(DeltaRows in, StepRows step, States states, Matrix out) {
  BeginKernel();
  const int64_t key_dim = in.q.cols / in.key_heads;
  const int64_t dim = in.v.cols / in.heads;
  const int64_t column_blocks = (dim + kColumns - 1) / kColumns;
  const int64_t h = blockIdx.y / column_blocks;
  const int64_t key_head = in.grouped ? h / (in.heads / in.key_heads) : h % in.key_heads;
  const int64_t j = blockIdx.y % column_blocks * kColumns + threadIdx.x;
  if (j >= dim) return;
  const Sequence sequence = step.sequences[blockIdx.x];
  float* const kept = states.data + sequence.state * states.slot_stride + h * key_dim * dim + j;

  __shared__ float columns[kShared ? kSharedKeys : 1][kColumns];
  float* s = kept;
  int64_t stride = dim;
  if constexpr (kShared) {
    s = &columns[0][threadIdx.x];
    stride = kColumns;
  }
  const bool fresh = sequence.first_position == 0;
  for (int64_t i = 0; i < key_dim; ++i) s[i * stride] = fresh ? 0.0f : kept[i * dim];

  for (int64_t t = 0; t < sequence.num_tokens; ++t) {
    const int64_t row = sequence.first_row + t;
    const float* q = in.q.data + row * in.q.stride + key_head * key_dim;
    const float* k = in.k.data + row * in.k.stride + key_head * key_dim;
    const int64_t keys = h * key_dim;
    const bool by_token = in.log_decay.data != nullptr, erases = in.erase.data != nullptr;
    const float* log_decay =
        by_token ? in.log_decay.data + row * in.log_decay.stride + keys : nullptr;
    const float* erase = erases ? in.erase.data + row * in.erase.stride + keys : nullptr;
    const float* rates = erases ? in.beta.data + row * in.beta.stride + keys : nullptr;
    const float time =
        by_token ? 0.0f : Softplus(in.alpha.data[row * in.alpha.stride + h] + in.dt_bias[h]);
    const float head_decay = by_token || in.a_of_keys ? 0.0f : expf(time * in.a[h]);
    const float learnt =
        in.reads ? Activate(Activation::kSigmoid, in.beta.data[row * in.beta.stride + h])
        : erases ? 1.0f
                 : time;
    float read = 0;
    for (int64_t i = 0; i < key_dim; ++i) {
      const float decay = by_token       ? expf(log_decay[i])
                          : in.a_of_keys ? expf(time * in.a[keys + i])
                                         : head_decay;
      const float before = s[i * stride];
      const float value = before * decay;
      s[i * stride] = value;
      read = erases ? fmaf(before, erase[i], read) : fmaf(value, k[i], read);
    }
    // v may be out: nobody else reads this value of it.
    const float v = in.v.data[row * in.v.stride + h * dim + j];
    const float change = (in.reads ? v - read : v) * learnt;
    float result = 0;
    for (int64_t i = 0; i < key_dim; ++i) {
      float value = s[i * stride];
      if (erases) value = fmaf(-(erase[i] * rates[i]), read, value);
      value = fmaf(k[i], change, value);
      s[i * stride] = value;
      result = fmaf(value, q[i], result);
    }
    out.data[row * out.stride + h * dim + j] =
        in.skip == nullptr ? result : fmaf(in.skip[h], v, result);
  }
  if constexpr (kShared) {
    for (int64_t i = 0; i < key_dim; ++i) kept[i * dim] = s[i * stride];
  }
}

}  // namespace

cudaError_t CausalConv(const Queue& queue, Matrix x, Matrix weight, const float* bias,
                       Activation activation, const StepRows& step, const States& states,
                       Matrix out) {
  const int64_t column_blocks = DivideUp(x.cols, kThreads);
  const cudaError_t error = Launch(queue, CausalConvKernel, Grid(x.rows, column_blocks), kThreads,
                                   x, weight, bias, activation, step, states, out);
  if (error != cudaSuccess) return error;
  return Launch(queue, KeepInputsKernel, Grid(step.num_sequences, column_blocks), kThreads, x,
                weight.rows - 1, step, states);
}

cudaError_t DeltaRule(const Queue& queue, const DeltaRows& inputs, const StepRows& step,
                      const States& states, Matrix out) {
  const bool shared = inputs.q.cols / inputs.key_heads <= kSharedKeys;
  const int64_t column_blocks = DivideUp(inputs.v.cols / inputs.heads, kColumns);
  return Launch(queue, shared ? DeltaRuleKernel<true> : DeltaRuleKernel<false>,
                Grid(step.num_sequences, inputs.heads * column_blocks), kColumns, inputs, step,
                states, out);
}

}  // namespace lm::cuda
