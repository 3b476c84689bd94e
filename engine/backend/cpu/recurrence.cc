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
  const int64_t tokens = in.q.rows;
  auto stride = [](Tensor t) { return t.row_bytes / static_cast<int64_t>(sizeof(float)); };

  // Both gates of every head, tokens side by side; where each key has its own decay, the step it is
  // made of. Decays of each token and key lie as log_decay does.
  const bool by_token = in.decays_by_token(), erases = in.rule == StateRule::kErase;
  const bool wide = !by_token && in.a.cols != in.heads;
  const int64_t keys = in.heads * key_dim, gates = in.heads * tokens;
  ASSIGN_OR_RETURN(char* memory,
                   inputs_.Get((gates + (by_token ? keys * tokens : gates)) * sizeof(float)));
  float* learnt = reinterpret_cast<float*>(memory);
  float* decay = learnt + gates;
  if (by_token) {
    ForRows(tokens, keys, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const float* from = in.log_decay.row<float>(t);
        for (int64_t i = 0; i < keys; ++i) decay[t * keys + i] = std::exp(from[i]);
        for (int64_t h = 0; h < in.heads && !erases; ++h) {
          learnt[h * tokens + t] = 1.0f / (1.0f + std::exp(-in.beta.row<float>(t)[h]));
        }
      }
    });
  }
  for (int64_t t = 0; t < tokens && !by_token; ++t) {
    for (int64_t h = 0; h < in.heads; ++h) {
      const float rate = in.alpha.row<float>(t)[h] + in.dt_bias.row<float>(0)[h];
      const float softplus = Softplus(rate);
      decay[h * tokens + t] = wide ? softplus : std::exp(softplus * in.a.row<float>(0)[h]);
      learnt[h * tokens + t] = in.rule == StateRule::kDelta
                                   ? 1.0f / (1.0f + std::exp(-in.beta.row<float>(t)[h]))
                                   : softplus;
    }
  }

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
    const float* decays = by_token ? decay + row * keys + h * key_dim : decay + h * tokens + row;
    std::vector<float> of_keys;  // (tokens, key_dim)
    if (wide) {
      const float* a = in.a.row<float>(0) + h * key_dim;
      of_keys.reserve(sequence.num_tokens * key_dim);
      for (int64_t t = 0; t < sequence.num_tokens; ++t) {
        for (int64_t i = 0; i < key_dim; ++i) of_keys.push_back(std::exp(decays[t] * a[i]));
      }
      decays = of_keys.data();
    }
    kernels_.delta_rule({.tokens = sequence.num_tokens,
                         .key_dim = key_dim,
                         .lanes = lanes,
                         .q = in.q.row<float>(row) + key,
                         .k = in.k.row<float>(row) + key,
                         .v = in.v.row<float>(row) + h * dim + first,
                         .q_stride = stride(in.q),
                         .k_stride = stride(in.k),
                         .v_stride = stride(in.v),
                         .decay = decays,
                         .learnt = learnt + h * tokens + row,
                         .decay_stride = by_token ? keys
                                         : wide   ? key_dim
                                                  : 1,
                         .decay_of_keys = wide || by_token,
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
