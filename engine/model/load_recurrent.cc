#include "engine/model/load_recurrent.h"

#include <cmath>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"

namespace lm {
namespace {

using Part = WeightLoader::ProjectionPart;

// A convolution of two tokens that gives the first of them.
absl::StatusOr<DeviceVector> PreviousToken(int64_t channels, WeightLoader* loader) {
  std::vector<float> taps(2 * channels);
  std::fill_n(taps.begin(), channels, 1.0f);
  return loader->ToDevice(taps, 2);
}

// Of what is read, each head.
absl::StatusOr<DeviceNorm> LoadHeadNorm(const ModelSpec& spec, const RwkvSpec& rwkv,
                                        const std::string& prefix, WeightLoader* loader) {
  constexpr float kEps = 64e-5f;
  ASSIGN_OR_RETURN(DeviceNorm norm,
                   loader->LoadNorm(prefix + "time_mix_ln", spec, 1, rwkv.inner()));
  norm.norm.kind = NormKind::kLayer;
  norm.norm.eps = kEps;
  norm.norm.group = rwkv.head_dim;
  return norm;
}

absl::Status LoadRwkv6(const ModelSpec& spec, const RwkvSpec& rwkv, const std::string& file_prefix,
                       WeightLoader* loader, MixerWeights* mixer) {
  RwkvWeights& weights = mixer->rwkv;
  const int64_t inner = rwkv.inner(), ranks = rwkv.mix_rank;
  const std::string prefix = file_prefix + "time_mix_";
  auto load = [&](Part part, int64_t cols, Projection* to) -> absl::Status {
    ASSIGN_OR_RETURN(*to, loader->LoadProjection({part}, cols));
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(const std::vector<float> shift,
                   loader->HostVector(prefix + "lerp_x.weight", inner));
  ASSIGN_OR_RETURN(weights.x_shift, loader->Gains(shift));
  ASSIGN_OR_RETURN(weights.nothing, loader->Gains(std::vector<float>(inner)));
  ASSIGN_OR_RETURN(weights.previous, PreviousToken(inner, loader));
  RETURN_IF_ERROR(load({prefix + "w1", 5 * ranks}, inner, &weights.mix_1));
  // Files of 2024 have a vector for each mixture.
  constexpr const char* kLerps[] = {"lerp_w", "lerp_k", "lerp_v", "lerp_r", "lerp_g"};
  const bool fused = !loader->Has(prefix + kLerps[0] + ".weight");
  for (int i = 0; i < 5; ++i) {
    Part part = {.prefix = prefix + "w2", .rows = inner, .count = 5, .index = i};
    part.bias = prefix + (fused ? "lerp_fused" : kLerps[i]) + ".weight";
    part.own_bias = !fused;
    RETURN_IF_ERROR(load(part, ranks, &weights.mix_2[i]));
  }
  RETURN_IF_ERROR(load({prefix + "receptance", inner}, inner, &weights.r));
  RETURN_IF_ERROR(load({prefix + "key", rwkv.kv_cols()}, inner, &weights.k));
  RETURN_IF_ERROR(load({prefix + "value", rwkv.kv_cols()}, inner, &weights.v));
  RETURN_IF_ERROR(load({prefix + "gate", inner}, inner, &weights.g));
  RETURN_IF_ERROR(load({prefix + "decay_w1", rwkv.decay_rank}, inner, &weights.w_1));
  Part decay = {prefix + "decay_w2", inner};
  decay.bias = prefix + "decay.weight";
  RETURN_IF_ERROR(load(decay, rwkv.decay_rank, &weights.w_2));
  if (!rwkv.is_linear()) {
    ASSIGN_OR_RETURN(const std::vector<float> first,
                     loader->HostMatrix(prefix + "first.weight", rwkv.heads, rwkv.head_dim));
    ASSIGN_OR_RETURN(weights.bonus_gain, loader->Gains(first));
    ASSIGN_OR_RETURN(weights.output_norm, LoadHeadNorm(spec, rwkv, file_prefix, loader));
  }
  return load({prefix + "output", spec.hidden}, inner, &mixer->output);
}

}  // namespace

absl::Status LoadKimiDelta(const ModelSpec& spec, const KimiDeltaSpec& kimi,
                           const std::string& prefix, WeightLoader* loader, MixerWeights* mixer) {
  const int64_t inner = kimi.inner(), dim = kimi.head_dim;
  std::vector<Part> parts = {
      {prefix + "attn_q", inner}, {prefix + "attn_k", inner}, {prefix + "attn_v", inner}};
  if (loader->Has(prefix + "attn_qkv.weight")) parts = {{prefix + "attn_qkv", 3 * inner}};
  // Of the decay there is a bias, which belongs to the product that makes it.
  const std::string bias = prefix + "ssm_dt.bias";
  parts.push_back({prefix + "ssm_f_a", kimi.gate_input()});
  if (!kimi.low_rank) parts.back().bias = bias;
  parts.push_back({prefix + "ssm_g_a", kimi.gate_input()});
  parts.push_back({prefix + "ssm_beta", kimi.heads});
  ASSIGN_OR_RETURN(mixer->input, loader->LoadProjection(parts, spec.hidden));
  KimiDeltaWeights& weights = mixer->kimi_delta;
  if (kimi.low_rank) {
    Part decay = {prefix + "ssm_f_b", inner};
    decay.bias = bias;
    ASSIGN_OR_RETURN(weights.decay, loader->LoadProjection({decay}, dim));
    ASSIGN_OR_RETURN(weights.gate, loader->LoadProjection({{prefix + "ssm_g_b", inner}}, dim));
  }
  ASSIGN_OR_RETURN(mixer->conv, loader->Transposed(
                                    {prefix + "ssm_conv1d_q.weight", prefix + "ssm_conv1d_k.weight",
                                     prefix + "ssm_conv1d_v.weight"},
                                    inner, kimi.conv_width));
  ASSIGN_OR_RETURN(const std::vector<float> a, loader->HostMatrix(prefix + "ssm_a", kimi.heads, 1));
  std::vector<float> of_keys;
  for (const float of_head : a) of_keys.insert(of_keys.end(), dim, of_head);
  ASSIGN_OR_RETURN(weights.a, loader->Gains(of_keys));
  ASSIGN_OR_RETURN(weights.output_norm, loader->Vector(prefix + "ssm_norm.weight", dim));
  // RmsNorm leaves a head with length sqrt(dim).
  const auto n = static_cast<float>(dim);
  ASSIGN_OR_RETURN(weights.k_gain, loader->ToDevice(std::vector<float>(dim, 1 / std::sqrt(n))));
  ASSIGN_OR_RETURN(weights.q_gain, loader->ToDevice(std::vector<float>(dim, 1 / n)));
  ASSIGN_OR_RETURN(mixer->output,
                   loader->LoadProjection({{prefix + "attn_output", spec.hidden}}, inner));
  return absl::OkStatus();
}

absl::Status LoadRwkv(const ModelSpec& spec, const RwkvSpec& rwkv, const std::string& prefix,
                      WeightLoader* loader, MixerWeights* mixer) {
  if (rwkv.is_6()) return LoadRwkv6(spec, rwkv, prefix, loader, mixer);
  RwkvWeights& weights = mixer->rwkv;
  const int64_t inner = rwkv.inner();
  const int64_t shifts = rwkv.gate_rank > 0 ? 6 : 5;
  ASSIGN_OR_RETURN(const std::vector<float> shift,
                   loader->HostMatrix(prefix + "time_mix_lerp_fused.weight", shifts, inner));
  DeviceNorm* const of_each[] = {&weights.r_shift, &weights.w_shift, &weights.k_shift,
                                 &weights.v_shift, &weights.a_shift, &weights.g_shift};
  for (int64_t i = 0; i < shifts; ++i) {
    const auto begin = shift.begin() + i * inner;
    ASSIGN_OR_RETURN(*of_each[i], loader->Gains(std::vector<float>(begin, begin + inner)));
  }
  ASSIGN_OR_RETURN(weights.previous, PreviousToken(inner, loader));
  auto load = [&](const char* name, int64_t rows, int64_t cols, const char* bias,
                  Projection* to) -> absl::Status {
    Part part = {prefix + "time_mix_" + name, rows};
    if (bias != nullptr) part.bias = prefix + "time_mix_" + bias + ".weight";
    ASSIGN_OR_RETURN(*to, loader->LoadProjection({part}, cols));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(load("receptance", inner, inner, nullptr, &weights.r));
  RETURN_IF_ERROR(load("key", inner, inner, nullptr, &weights.k));
  RETURN_IF_ERROR(load("value", inner, inner, nullptr, &weights.v));
  RETURN_IF_ERROR(load("w1", rwkv.decay_rank, inner, nullptr, &weights.w_1));
  RETURN_IF_ERROR(load("w2", inner, rwkv.decay_rank, "w0", &weights.w_2));
  RETURN_IF_ERROR(load("a1", rwkv.rate_rank, inner, nullptr, &weights.a_1));
  RETURN_IF_ERROR(load("a2", inner, rwkv.rate_rank, "a0", &weights.a_2));
  if (rwkv.first) {
    for (const char* name : {"v0", "v1", "v2"}) {
      loader->LeaveOut(prefix + "time_mix_" + name + ".weight");
    }
  } else {
    RETURN_IF_ERROR(load("v1", rwkv.value_rank, inner, nullptr, &weights.v_1));
    RETURN_IF_ERROR(load("v2", inner, rwkv.value_rank, "v0", &weights.v_2));
  }
  if (rwkv.gate_rank > 0) {
    RETURN_IF_ERROR(load("g1", rwkv.gate_rank, inner, nullptr, &weights.g_1));
    RETURN_IF_ERROR(load("g2", inner, rwkv.gate_rank, nullptr, &weights.g_2));
  }
  auto gains = [&](const char* name, DeviceNorm* to) -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<float> values,
                     loader->HostVector(prefix + "time_mix_" + name + ".weight", inner));
    ASSIGN_OR_RETURN(*to, loader->Gains(values));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(gains("k_k", &weights.erase_gain));
  RETURN_IF_ERROR(gains("k_a", &weights.rate_gain));
  RETURN_IF_ERROR(gains("r_k", &weights.bonus_gain));
  const float unit = 1 / std::sqrt(static_cast<float>(rwkv.head_dim));
  ASSIGN_OR_RETURN(weights.unit, loader->ToDevice(std::vector<float>(rwkv.head_dim, unit)));
  if (rwkv.normed) {
    ASSIGN_OR_RETURN(weights.output_norm, LoadHeadNorm(spec, rwkv, prefix, loader));
  }
  return load("output", spec.hidden, inner, nullptr, &mixer->output);
}

absl::StatusOr<FeedForwardWeights> LoadChannelMix(const ModelSpec& spec, int64_t width, bool gated,
                                                  const std::string& prefix, WeightLoader* loader) {
  FeedForwardWeights weights;
  ASSIGN_OR_RETURN(const std::vector<float> shift,
                   loader->HostVector(prefix + "channel_mix_lerp_k.weight", spec.hidden));
  ASSIGN_OR_RETURN(weights.shift, loader->Gains(shift));
  if (gated) {
    ASSIGN_OR_RETURN(const std::vector<float> gate_shift,
                     loader->HostVector(prefix + "channel_mix_lerp_r.weight", spec.hidden));
    ASSIGN_OR_RETURN(weights.gate_shift, loader->Gains(gate_shift));
    ASSIGN_OR_RETURN(
        weights.output_gate,
        loader->LoadProjection({{prefix + "channel_mix_receptance", spec.hidden}}, spec.hidden));
  }
  ASSIGN_OR_RETURN(weights.previous, PreviousToken(spec.hidden, loader));
  ASSIGN_OR_RETURN(weights.input,
                   loader->LoadProjection({{prefix + "channel_mix_key", width}}, spec.hidden));
  ASSIGN_OR_RETURN(weights.down,
                   loader->LoadProjection({{prefix + "channel_mix_value", spec.hidden}}, width));
  return weights;
}

}  // namespace lm
