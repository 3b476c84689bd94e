// Ops with a state of fixed size for each sequence. Their work is shared by rows (CausalConv), or
// by sequence, head and 16 columns (DeltaRule), whose state then stays in the cache of one core for
// all tokens of a prompt.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <vector>

#include "engine/backend/check_arguments.h"
#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/softplus.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// What a delta rule forgets and learns, of all tokens of a step, made of its inputs.
class DeltaGates {
 public:
  explicit DeltaGates(const DeltaRuleInputs& in)
      : in_(in),
        tokens_(in.q.rows),
        key_dim_(in.q.cols / in.key_heads),
        keys_(in.heads * key_dim_),
        by_token_(in.decays_by_token()),
        wide_(!by_token_ && in.a.cols != in.heads) {}

  // Whether each key has a decay of its own.
  bool of_keys() const { return wide_ || by_token_; }
  // Values from a token's decays to the next one's.
  int64_t decay_stride() const { return by_token_ ? keys_ : wide_ ? key_dim_ : 1; }
  const float* learnt(int64_t head, int64_t row) const { return learnt_ + head * tokens_ + row; }

  int64_t floats() const { return in_.heads * tokens_ + (by_token_ ? keys_ : in_.heads) * tokens_; }
  // Into memory for floats().
  void LayOut(float* memory) {
    learnt_ = memory;
    decay_ = memory + in_.heads * tokens_;
  }

  // Of the tokens [begin, end).
  void Fill(int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      if (by_token_) {
        FillByToken(t);
      } else {
        FillByHead(t);
      }
    }
  }

  // The decays of a head from a row on; memory: for those that are made of a step.
  const float* Decays(int64_t head, int64_t row, int64_t tokens, std::vector<float>* memory) const {
    if (by_token_) return decay_ + row * keys_ + head * key_dim_;
    const float* steps = decay_ + head * tokens_ + row;
    if (!wide_) return steps;
    const float* a = in_.a.row<float>(0) + head * key_dim_;
    memory->reserve(tokens * key_dim_);
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t i = 0; i < key_dim_; ++i) memory->push_back(std::exp(steps[t] * a[i]));
    }
    return memory->data();
  }

 private:
  // (tokens, keys), as log_decay lies.
  void FillByToken(int64_t t) {
    const float* from = in_.log_decay.row<float>(t);
    for (int64_t i = 0; i < keys_; ++i) decay_[t * keys_ + i] = std::exp(from[i]);
    if (in_.rule == StateRule::kErase) return;
    for (int64_t h = 0; h < in_.heads; ++h) {
      learnt_[h * tokens_ + t] = Sigmoid(in_.beta.row<float>(t)[h]);
    }
  }

  // (heads, tokens); where each key has its own decay, the step that it is made of.
  void FillByHead(int64_t t) {
    for (int64_t h = 0; h < in_.heads; ++h) {
      const float rate = in_.alpha.row<float>(t)[h] + in_.dt_bias.row<float>(0)[h];
      const float softplus = Softplus(rate);
      decay_[h * tokens_ + t] = wide_ ? softplus : std::exp(softplus * in_.a.row<float>(0)[h]);
      learnt_[h * tokens_ + t] =
          in_.rule == StateRule::kDelta ? Sigmoid(in_.beta.row<float>(t)[h]) : softplus;
    }
  }

  const DeltaRuleInputs& in_;
  const int64_t tokens_, key_dim_, keys_;
  const bool by_token_, wide_;
  float* learnt_ = nullptr;  // (heads, tokens)
  float* decay_ = nullptr;
};

}  // namespace

absl::Status CpuBackend::CausalConv(Tensor x, Tensor weight, Tensor bias, Activation activation,
                                    const StateLayer& layer, Tensor out) {
  RETURN_IF_ERROR(CheckCausalConv(step_index(), x, weight, bias, activation, layer, out));
  const int64_t before = weight.rows - 1, channels = weight.cols;
  const int64_t weight_stride = weight.row_bytes / static_cast<int64_t>(sizeof(float));
  const absl::Span<const StepSequence> sequences = step().sequences;
  const std::vector<float> zeros(channels);
  auto state = [&](const StepSequence& s) { return layer.data + s.state * layer.slot_stride; };
  // Input `i` of a sequence's tokens in this step; the ones before are negative.
  auto input = [&](const StepSequence& s, int64_t i) -> const float* {
    if (i >= 0) return x.row<float>(s.first_row + i);
    return s.first_position == 0 ? zeros.data() : state(s) + (before + i) * channels;
  };
  ForRows(x.rows, channels, [&](int64_t begin, int64_t end) {
    auto of_row = std::upper_bound(sequences.begin(), sequences.end(), begin,
                                   [](int64_t row, const auto& s) { return row < s.first_row; });
    std::vector<const float*> rows(weight.rows);
    for (int64_t row = begin; row < end; ++row) {
      while (of_row != sequences.end() && row == of_row->first_row) ++of_row;
      const StepSequence& s = *std::prev(of_row);
      for (int64_t j = 0; j <= before; ++j) rows[j] = input(s, row - s.first_row - before + j);
      kernels_.conv(rows.data(), weight.row<float>(0), weight_stride, static_cast<int>(weight.rows),
                    channels, bias.empty() ? nullptr : bias.row<float>(0),
                    activation == Activation::kSilu, out.row<float>(row));
    }
  });
  // Only now: a prompt's tokens are computed side by side, all from the state before them. A row of
  // the next state may be one of this state, behind those that it is written over.
  const auto count = static_cast<int64_t>(sequences.size());
  ForWork(count, count * before * channels, [&](int64_t i) {
    const StepSequence& s = sequences[i];
    for (int64_t j = 0; j < before; ++j) {
      std::memcpy(state(s) + j * channels, input(s, s.num_tokens - before + j),
                  channels * sizeof(float));
    }
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::DeltaRule(const DeltaRuleInputs& in, const StateLayer& layer, Tensor out) {
  RETURN_IF_ERROR(CheckDeltaRule(step_index(), in, layer, out));
  constexpr int64_t kLanes = 16;
  const int64_t key_dim = in.q.cols / in.key_heads, dim = in.v.cols / in.heads;
  const int64_t panels = (dim + kLanes - 1) / kLanes;
  const bool erases = in.rule == StateRule::kErase;
  auto stride = [](Tensor t) { return t.row_bytes / static_cast<int64_t>(sizeof(float)); };

  DeltaGates gates(in);
  ASSIGN_OR_RETURN(char* memory, inputs_.Get(gates.floats() * sizeof(float)));
  gates.LayOut(reinterpret_cast<float*>(memory));
  ForRows(in.q.rows, in.heads * key_dim,
          [&](int64_t begin, int64_t end) { gates.Fill(begin, end); });

  const int64_t per_sequence = in.heads * panels;
  ForItems(static_cast<int64_t>(step().sequences.size()) * per_sequence, [&](int64_t item, int) {
    const StepSequence& sequence = step().sequences[item / per_sequence];
    const int64_t h = item % per_sequence / panels, first = item % panels * kLanes;
    const int64_t row = sequence.first_row,
                  key = (in.grouped ? h / (in.heads / in.key_heads) : h % in.key_heads) * key_dim;
    const int lanes = static_cast<int>(std::min(kLanes, dim - first));
    float* state = layer.data + sequence.state * layer.slot_stride + h * key_dim * dim + first;
    if (sequence.first_position == 0) {
      for (int64_t i = 0; i < key_dim; ++i) std::fill_n(state + i * dim, lanes, 0.0f);
    }
    if (sequence.num_tokens == 0) return;
    std::vector<float> of_keys;
    kernels_.delta_rule({.tokens = sequence.num_tokens,
                         .key_dim = key_dim,
                         .lanes = lanes,
                         .q = in.q.row<float>(row) + key,
                         .k = in.k.row<float>(row) + key,
                         .v = in.v.row<float>(row) + h * dim + first,
                         .q_stride = stride(in.q),
                         .k_stride = stride(in.k),
                         .v_stride = stride(in.v),
                         .decay = gates.Decays(h, row, sequence.num_tokens, &of_keys),
                         .learnt = gates.learnt(h, row),
                         .decay_stride = gates.decay_stride(),
                         .decay_of_keys = gates.of_keys(),
                         .erase = erases ? in.erase.row<float>(row) + h * key_dim : nullptr,
                         .rates = erases ? in.beta.row<float>(row) + h * key_dim : nullptr,
                         .erase_stride = stride(in.erase),
                         .rates_stride = stride(in.beta),
                         .reads = in.rule == StateRule::kDelta,
                         .skip = in.skip.empty() ? 0 : in.skip.row<float>(0)[h],
                         .state = state,
                         .state_stride = dim,
                         .out = out.row<float>(row) + h * dim + first,
                         .out_stride = stride(out)});
  });
  return absl::OkStatus();
}

}  // namespace lm
