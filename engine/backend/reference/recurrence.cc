// Ops with a state of fixed size for each sequence.
#include <cmath>
#include <vector>

#include "engine/backend/check_arguments.h"
#include "engine/backend/reference/reference_backend.h"
#include "engine/backend/softplus.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::Status ReferenceBackend::CausalConv(Tensor x, Tensor weight, Tensor bias,
                                          Activation activation, const StateLayer& layer,
                                          Tensor out) {
  RETURN_IF_ERROR(CheckCausalConv(step_index(), x, weight, bias, activation, layer, out));
  const int64_t before = weight.rows - 1, channels = weight.cols;
  for (const StepSequence& sequence : step().sequences) {
    float* state = layer.data + sequence.state * layer.slot_stride;
    // Input `i` of the sequence's tokens in this step; the ones before are negative.
    auto input = [&](int64_t i, int64_t c) {
      if (i >= 0) return x.row<float>(sequence.first_row + i)[c];
      return sequence.first_position == 0 ? 0.0f : state[(before + i) * channels + c];
    };
    std::vector<float> next(before * channels);
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t t = 0; t < sequence.num_tokens; ++t) {
        float sum = 0;
        for (int64_t j = 0; j <= before; ++j) {
          sum = std::fma(weight.row<float>(j)[c], input(t - before + j, c), sum);
        }
        if (!bias.empty()) sum += bias.row<float>(0)[c];
        const bool silu = activation == Activation::kSilu;
        out.row<float>(sequence.first_row + t)[c] = silu ? sum / (1.0f + std::exp(-sum)) : sum;
      }
      for (int64_t i = 0; i < before; ++i) {
        next[i * channels + c] = input(sequence.num_tokens - before + i, c);
      }
    }
    std::copy(next.begin(), next.end(), state);
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::DeltaRule(const DeltaRuleInputs& in, const StateLayer& layer,
                                         Tensor out) {
  RETURN_IF_ERROR(CheckDeltaRule(step_index(), in, layer, out));
  const int64_t key_dim = in.q.cols / in.key_heads, dim = in.v.cols / in.heads;
  for (const StepSequence& sequence : step().sequences) {
    for (int64_t h = 0; h < in.heads; ++h) {
      const int64_t key_head = in.grouped ? h / (in.heads / in.key_heads) : h % in.key_heads;
      float* s =
          layer.data + sequence.state * layer.slot_stride + h * key_dim * dim;  // (key_dim, dim)
      if (sequence.first_position == 0) std::fill(s, s + key_dim * dim, 0.0f);
      for (int64_t row = sequence.first_row; row < sequence.first_row + sequence.num_tokens;
           ++row) {
        const float* q = in.q.row<float>(row) + key_head * key_dim;
        const float* k = in.k.row<float>(row) + key_head * key_dim;
        const bool reads = in.rule == StateRule::kDelta, erases = in.rule == StateRule::kErase;
        float softplus = 0;
        if (!in.decays_by_token()) {
          const float rate = in.alpha.row<float>(row)[h] + in.dt_bias.row<float>(0)[h];
          softplus = Softplus(rate);
        }
        auto decay = [&](int64_t i) {
          if (in.decays_by_token()) return std::exp(in.log_decay.row<float>(row)[h * key_dim + i]);
          const float* a = in.a.row<float>(0);
          return std::exp(softplus * (in.a.cols == in.heads ? a[h] : a[h * key_dim + i]));
        };
        const float learnt = erases  ? 1.0f
                             : reads ? 1.0f / (1.0f + std::exp(-in.beta.row<float>(row)[h]))
                                     : softplus;
        const float* erase = erases ? in.erase.row<float>(row) + h * key_dim : nullptr;
        const float* rates = erases ? in.beta.row<float>(row) + h * key_dim : nullptr;
        const float skip = in.skip.empty() ? 0 : in.skip.row<float>(0)[h];
        for (int64_t j = 0; j < dim; ++j) {
          float read = 0;
          for (int64_t i = 0; i < key_dim; ++i) {
            if (erases) read = std::fma(s[i * dim + j], erase[i], read);
            s[i * dim + j] *= decay(i);
            if (!erases) read = std::fma(s[i * dim + j], k[i], read);
          }
          const float v = in.v.row<float>(row)[h * dim + j];
          const float change = (reads ? v - read : v) * learnt;
          float result = 0;
          for (int64_t i = 0; i < key_dim; ++i) {
            if (erases) s[i * dim + j] = std::fma(-(erase[i] * rates[i]), read, s[i * dim + j]);
            s[i * dim + j] = std::fma(k[i], change, s[i * dim + j]);
            result = std::fma(s[i * dim + j], q[i], result);
          }
          out.row<float>(row)[h * dim + j] = in.skip.empty() ? result : std::fma(skip, v, result);
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace lm
