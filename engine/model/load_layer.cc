#include "engine/model/load_layer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/load_compressed.h"
#include "engine/model/load_recurrent.h"
#include "engine/model/load_streams.h"

namespace lm {
namespace {

// Of a power of 2 heads, head h has 2^(-max (h + 1) / heads) (Press et al. 2021, arXiv 2108.12409).
// Of others the first ones have those of the next lower power of 2, and the rest what lies between.
std::vector<float> AlibiSlopes(const AttentionSpec& attention) {
  int64_t power = 1;
  while (2 * power <= attention.heads) power *= 2;
  const double step = -double{attention.max_alibi} / static_cast<double>(power);
  std::vector<float> slopes;
  for (int64_t h = 0; h < attention.heads; ++h) {
    const double exponent =
        h < power ? static_cast<double>(h + 1) : static_cast<double>(2 * (h - power) + 1) / 2;
    slopes.push_back(static_cast<float>(std::exp2(step * exponent)));
  }
  return slopes;
}

// That no token has an expert twice, which no backend reckons with; `of_tokens` (tokens, chosen).
absl::Status CheckDiffer(absl::string_view name, absl::Span<const int32_t> of_tokens,
                         int32_t chosen) {
  for (size_t begin = 0; begin < of_tokens.size(); begin += chosen) {
    const auto experts = of_tokens.subspan(begin, chosen);
    for (auto expert = experts.begin(); expert != experts.end(); ++expert) {
      if (std::find(experts.begin(), expert, *expert) == expert) continue;
      return absl::InvalidArgumentError(absl::StrCat("tensor '", name, "': token ", begin / chosen,
                                                     " has expert ", *expert, " twice"));
    }
  }
  return absl::OkStatus();
}

class LayerLoader {
 public:
  LayerLoader(const ModelSpec& spec, int64_t index, WeightLoader* loader)
      : spec_(spec), layer_(spec.layers[index]), index_(index), loader_(*loader) {}

  absl::Status Load(LayerWeights* to) {
    LayerWeights& layer = *to;
    ASSIGN_OR_RETURN(layer.mixer_norm, LoadNorm(layer_.mixer_norm));
    RETURN_IF_ERROR(LoadMixer(&layer.mixer));
    if (spec_.hyper.has_value()) {
      ASSIGN_OR_RETURN(layer.hyper_mixer, LoadHyper(spec_, Name("hc_attn"), &loader_));
      ASSIGN_OR_RETURN(layer.hyper_feed_forward, LoadHyper(spec_, Name("hc_ffn"), &loader_));
    } else if (spec_.streams > 1) {
      ASSIGN_OR_RETURN(layer.streams, LoadLayerStreams(spec_, Name(""), &loader_));
    }
    if (layer_.laurel_rank > 0) RETURN_IF_ERROR(LoadLaurel(&layer.laurel));
    if (layer_.beside.has_value()) RETURN_IF_ERROR(LoadStateSpace(*layer_.beside, &layer.beside));
    ASSIGN_OR_RETURN(layer.post_mixer_norm, LoadPostNorm(layer_.post_mixer_norm));
    ASSIGN_OR_RETURN(layer.feed_forward_norm, LoadNorm(layer_.feed_forward_norm));
    ASSIGN_OR_RETURN(layer.post_feed_forward_norm, LoadPostNorm(layer_.post_feed_forward_norm));
    ASSIGN_OR_RETURN(layer.mixer_sum_norm, LoadNorm(layer_.mixer_sum_norm));
    ASSIGN_OR_RETURN(layer.mixer_second_sum_norm, LoadNorm(layer_.mixer_second_sum_norm));
    ASSIGN_OR_RETURN(layer.feed_forward_sum_norm, LoadNorm(layer_.feed_forward_sum_norm));
    if (layer_.feed_forward.experts.has_value()) {
      ASSIGN_OR_RETURN(layer.experts, LoadExperts(*layer_.feed_forward.experts));
    }
    if (layer_.feed_forward.is_dense()) {
      ASSIGN_OR_RETURN(layer.feed_forward, LoadDense());
    }
    if (spec_.per_layer_input > 0) RETURN_IF_ERROR(LoadInput(&layer.input));
    layer.output_scale = layer_.output_factor;
    if (layer_.output_scale != nullptr && loader_.Has(Name(layer_.output_scale) + ".weight")) {
      ASSIGN_OR_RETURN(const std::vector<float> scale,
                       loader_.HostVector(Name(layer_.output_scale) + ".weight", 1));
      layer.output_scale *= scale[0];
    }
    return absl::OkStatus();
  }

 private:
  using Part = WeightLoader::ProjectionPart;

  std::string Name(absl::string_view part) const { return absl::StrCat("blk.", index_, ".", part); }

  // Of the residual stream; empty where the name is null.
  absl::StatusOr<DeviceNorm> LoadNorm(const char* part) {
    if (part == nullptr) return DeviceNorm();
    if (spec_.plain_norms) return loader_.PlainNorm(spec_, spec_.hidden);
    return loader_.LoadNorm(Name(part), spec_, 1, spec_.hidden);
  }

  absl::StatusOr<DeviceNorm> LoadPostNorm(const char* part) {
    ASSIGN_OR_RETURN(DeviceNorm norm, LoadNorm(part));
    if (spec_.post_norm_eps > 0) norm.norm.eps = spec_.post_norm_eps;
    return norm;
  }

  absl::Status LoadInput(LayerInputWeights* input) {
    const int64_t width = spec_.per_layer_input;
    ASSIGN_OR_RETURN(input->gate,
                     loader_.LoadProjection({{Name("inp_gate"), width}}, spec_.hidden));
    ASSIGN_OR_RETURN(input->projection,
                     loader_.LoadProjection({{Name("proj"), spec_.hidden}}, width));
    ASSIGN_OR_RETURN(input->norm, LoadNorm("post_norm"));
    return absl::OkStatus();
  }

  absl::Status LoadLaurel(LaurelWeights* laurel) {
    const int64_t rank = layer_.laurel_rank;
    ASSIGN_OR_RETURN(laurel->down,
                     loader_.LoadProjection({{Name("laurel_l"), rank}}, spec_.hidden));
    ASSIGN_OR_RETURN(laurel->up, loader_.LoadProjection({{Name("laurel_r"), spec_.hidden}}, rank));
    ASSIGN_OR_RETURN(laurel->norm, LoadNorm("laurel_post_norm"));
    return absl::OkStatus();
  }

  absl::Status LoadMixer(MixerWeights* mixer) {
    if (!layer_.has_mixer()) return absl::OkStatus();
    if (const DeltaNetSpec* net = layer_.delta_net()) return LoadDeltaNet(*net, mixer);
    if (const KimiDeltaSpec* kimi = layer_.kimi_delta()) {
      return LoadKimiDelta(spec_, *kimi, Name(""), &loader_, mixer);
    }
    if (const RwkvSpec* rwkv = layer_.rwkv()) {
      return LoadRwkv(spec_, *rwkv, Name(""), &loader_, mixer);
    }
    if (const StateSpaceSpec* space = layer_.state_space()) return LoadStateSpace(*space, mixer);
    if (const SelectiveSpec* selective = layer_.selective()) {
      return LoadSelective(*selective, mixer);
    }
    if (const ShortConvSpec* conv = layer_.short_conv()) return LoadShortConv(*conv, mixer);
    const AttentionSpec& attention = *layer_.attention();
    if (attention.compressed.has_value()) {
      return LoadCompressed(spec_, attention, Name(""), &loader_, mixer);
    }
    return attention.latent.has_value() ? LoadLatent(attention, mixer)
                                        : LoadAttention(attention, mixer);
  }

  absl::Status LoadAttention(const AttentionSpec& attention, MixerWeights* mixer) {
    std::vector<Part> parts = {{Name("attn_q"), attention.q_cols()},
                               {Name("attn_k"), attention.k_cols()},
                               {Name("attn_v"), attention.v_cols()}};
    if (attention.output_gate == OutputGate::kInQ) {
      parts[0] = {Name("attn_q"), 2 * attention.q_cols(), {attention.key_dim, attention.key_dim}};
    }
    if (attention.kv_source >= 0) {
      parts.resize(1);
      // Some converters write what nobody needs.
      for (const char* part : {"attn_k", "attn_v", "attn_k_norm"}) {
        loader_.LeaveOut(Name(part) + ".weight");
      }
    } else if (attention.value_is_key) {
      parts.resize(2);
    } else if (loader_.Has(Name("attn_qkv.weight"))) {
      parts = InOneTensor(std::move(parts));
    }
    if (attention.output_gate == OutputGate::kOwn) {
      parts.push_back({Name("attn_gate"), attention.gate_cols()});
    }
    ASSIGN_OR_RETURN(mixer->input, loader_.LoadProjection(parts, spec_.hidden));
    ASSIGN_OR_RETURN(mixer->q_norm, LoadHeadNorm("attn_q_norm", attention, attention.heads));
    if (attention.kv_source < 0) {
      ASSIGN_OR_RETURN(mixer->k_norm, LoadHeadNorm("attn_k_norm", attention, attention.kv_heads));
    }
    if (attention.value_norm) {
      ASSIGN_OR_RETURN(mixer->v_norm, loader_.PlainNorm(spec_, attention.value_dim));
    }
    if (attention.sinks) {
      ASSIGN_OR_RETURN(mixer->sinks, loader_.Vector(Name("attn_sinks.weight"), attention.heads));
    }
    if (attention.max_alibi > 0) {
      ASSIGN_OR_RETURN(mixer->slopes, loader_.ToDevice(AlibiSlopes(attention)));
    }
    ASSIGN_OR_RETURN(mixer->output, loader_.LoadProjection({{Name("attn_output"), spec_.hidden}},
                                                           attention.out_cols()));
    return absl::OkStatus();
  }

  // q, k and v as the rows of one tensor, one after the other; biases may be those of three.
  std::vector<Part> InOneTensor(std::vector<Part> parts) const {
    Part all = {Name("attn_qkv"), 0};
    const bool one_bias = loader_.Has(all.prefix + ".bias");
    bool as_it_is = true;
    for (Part& part : parts) {
      part.own_bias = !one_bias && loader_.Has(part.prefix + ".bias");
      if (part.own_bias) part.bias = part.prefix + ".bias";
      as_it_is = as_it_is && part.runs.empty() && !part.own_bias;
      part.prefix = all.prefix;
      part.first = all.rows;
      all.rows += part.rows;
    }
    if (as_it_is) return {all};
    for (Part& part : parts) part.all_rows = all.rows;
    return parts;
  }

  absl::StatusOr<DeviceNorm> LoadHeadNorm(const char* part, const AttentionSpec& attention,
                                          int64_t heads) {
    const int64_t dim = attention.key_dim;
    switch (attention.head_norm) {
      case HeadNorm::kNone:
        break;
      case HeadNorm::kEach:
        return loader_.LoadNorm(Name(part), spec_, 1, dim);
      case HeadNorm::kPlain:
        return loader_.PlainNorm(spec_, dim);
      case HeadNorm::kWhole:
        return loader_.LoadNorm(Name(part), spec_, 1, heads * dim);
      case HeadNorm::kOwnGain: {
        ASSIGN_OR_RETURN(DeviceNorm norm, loader_.LoadNorm(Name(part), spec_, heads, dim));
        norm.norm.group = dim;
        return norm;
      }
    }
    return DeviceNorm();
  }

  absl::Status LoadLatent(const AttentionSpec& attention, MixerWeights* mixer) {
    const LatentSpec& spec = *attention.latent;
    LatentWeights& latent = mixer->latent;
    Part q = {Name("attn_q"), attention.latent_q_cols()};
    if (spec.q_rank > 0) {
      q = {Name("attn_q_a"), spec.q_rank};
      ASSIGN_OR_RETURN(latent.q_norm,
                       loader_.LoadNorm(Name("attn_q_a_norm"), spec_, 1, spec.q_rank));
      ASSIGN_OR_RETURN(
          latent.q_b,
          loader_.LoadProjection({{Name("attn_q_b"), attention.latent_q_cols()}}, spec.q_rank));
    }
    std::vector<Part> parts = {q, {Name("attn_kv_a_mqa"), attention.key_dim}};
    if (attention.output_gate == OutputGate::kOwn) {
      parts.push_back({Name("attn_gate"), attention.gate_cols()});
    }
    ASSIGN_OR_RETURN(mixer->input, loader_.LoadProjection(parts, spec_.hidden));
    const int64_t heads = attention.heads, rank = attention.value_dim;
    ASSIGN_OR_RETURN(latent.norm, loader_.LoadNorm(Name("attn_kv_a_norm"), spec_, 1, rank));
    const int64_t both = spec.nope + spec.value_dim;
    const std::string joint = Name("attn_kv_b.weight");  // older files: of each head K_h, V_h
    const bool is_joint = loader_.Has(joint);
    for (int64_t h = 0; h < heads; ++h) {
      Projection k, v;
      if (is_joint) {
        ASSIGN_OR_RETURN(k, loader_.LoadRows(joint, heads * both, rank, h * both, spec.nope,
                                             /*transpose=*/true));
        ASSIGN_OR_RETURN(v, loader_.LoadRows(joint, heads * both, rank, h * both + spec.nope,
                                             spec.value_dim, /*transpose=*/false));
      } else {
        ASSIGN_OR_RETURN(
            k, loader_.LoadProjection({{Name("attn_k_b"), rank, {}, heads, h}}, spec.nope));
        ASSIGN_OR_RETURN(
            v, loader_.LoadProjection({{Name("attn_v_b"), spec.value_dim, {}, heads, h}}, rank));
      }
      latent.k.push_back(std::move(k));
      latent.v.push_back(std::move(v));
    }
    ASSIGN_OR_RETURN(mixer->output, loader_.LoadProjection({{Name("attn_output"), spec_.hidden}},
                                                           heads * spec.value_dim));
    return absl::OkStatus();
  }

  absl::Status LoadDeltaNet(const DeltaNetSpec& net, MixerWeights* mixer) {
    const int64_t sharing = net.heads / net.key_heads, values = sharing * net.value_dim;
    std::vector<Part> parts = {{Name("attn_qkv"), net.conv_cols()},
                               {Name("attn_gate"), net.value_cols()}};
    if (loader_.Has(Name("ssm_in.weight"))) {  // older files: both of each key head in turn
      parts = {{Name("ssm_in"),
                net.conv_cols() + net.value_cols(),
                {net.key_dim, net.key_dim, values, values}}};
    }
    if (loader_.Has(Name("ssm_ba.weight"))) {
      parts.push_back({Name("ssm_ba"), 2 * net.heads, {sharing, sharing}});
    } else {
      parts.push_back({Name("ssm_beta"), net.heads});
      parts.push_back({Name("ssm_alpha"), net.heads});
    }
    ASSIGN_OR_RETURN(mixer->input, loader_.LoadProjection(parts, spec_.hidden));
    ASSIGN_OR_RETURN(mixer->conv, loader_.Transposed(Name("ssm_conv1d.weight"), net.conv_cols(),
                                                     net.conv_width));
    DeltaNetWeights& weights = mixer->delta_net;
    ASSIGN_OR_RETURN(weights.dt_bias, loader_.Vector(Name("ssm_dt.bias"), net.heads));
    ASSIGN_OR_RETURN(weights.a, loader_.Vector(Name("ssm_a"), net.heads));
    ASSIGN_OR_RETURN(weights.output_norm, loader_.Vector(Name("ssm_norm.weight"), net.value_dim));
    // RmsNorm leaves a head with length sqrt(key_dim).
    const float n = static_cast<float>(net.key_dim);
    ASSIGN_OR_RETURN(weights.k_gain,
                     loader_.ToDevice(std::vector<float>(net.key_dim, 1 / std::sqrt(n))));
    ASSIGN_OR_RETURN(weights.q_gain, loader_.ToDevice(std::vector<float>(net.key_dim, 1 / n)));
    ASSIGN_OR_RETURN(mixer->output,
                     loader_.LoadProjection({{Name("ssm_out"), spec_.hidden}}, net.value_cols()));
    return absl::OkStatus();
  }

  absl::Status LoadStateSpace(const StateSpaceSpec& space, MixerWeights* mixer) {
    ASSIGN_OR_RETURN(mixer->input,
                     loader_.LoadProjection({{Name("ssm_in"), space.input_cols()}}, spec_.hidden));
    ASSIGN_OR_RETURN(mixer->conv, loader_.Transposed(Name("ssm_conv1d.weight"), space.conv_cols(),
                                                     space.conv_width));
    StateSpaceWeights& weights = mixer->state_space;
    if (loader_.Has(Name("ssm_conv1d.bias"))) {
      ASSIGN_OR_RETURN(weights.conv_bias,
                       loader_.Vector(Name("ssm_conv1d.bias"), space.conv_cols()));
    }
    ASSIGN_OR_RETURN(weights.dt_bias, loader_.Vector(Name("ssm_dt.bias"), space.heads));
    ASSIGN_OR_RETURN(weights.a, loader_.Flat(Name("ssm_a"), space.heads, 1));
    ASSIGN_OR_RETURN(weights.skip, loader_.Flat(Name("ssm_d"), space.heads, 1));
    const int64_t group = space.inner() / space.groups;
    if (loader_.Has(Name("ssm_norm.weight"))) {
      ASSIGN_OR_RETURN(weights.output_norm,
                       loader_.LoadNorm(Name("ssm_norm"), spec_, space.groups, group));
      weights.output_norm.norm.group = group;
    }
    ASSIGN_OR_RETURN(mixer->output,
                     loader_.LoadProjection({{Name("ssm_out"), spec_.hidden}}, space.inner()));
    return absl::OkStatus();
  }

  absl::Status LoadSelective(const SelectiveSpec& spec, MixerWeights* mixer) {
    SelectiveWeights& weights = mixer->selective;
    auto load = [&](const char* part, int64_t rows, int64_t cols) {
      return loader_.LoadProjection({{Name(part), rows}}, cols);
    };
    const bool in_heads = spec.head_dim > 0;
    Part input = {Name("ssm_in"), 2 * spec.inner};
    if (in_heads) input.runs = {spec.head_dim, spec.head_dim};  // z and x of each head in turn
    ASSIGN_OR_RETURN(mixer->input, loader_.LoadProjection({input}, spec_.hidden));
    ASSIGN_OR_RETURN(mixer->conv,
                     loader_.Transposed(Name("ssm_conv1d.weight"), spec.inner, spec.conv_width));
    if (!in_heads) {
      ASSIGN_OR_RETURN(weights.conv_bias, loader_.Vector(Name("ssm_conv1d.bias"), spec.inner));
    }
    ASSIGN_OR_RETURN(weights.from_x,
                     load("ssm_x", spec.step_rank + 2 * spec.state_dim, spec.inner));
    ASSIGN_OR_RETURN(weights.step, load("ssm_dt", spec.heads(), spec.step_rank));
    ASSIGN_OR_RETURN(weights.no_bias, loader_.ToDevice(std::vector<float>(spec.heads())));
    ASSIGN_OR_RETURN(weights.skip, loader_.Vector(Name("ssm_d"), spec.heads()));
    if (in_heads) {
      ASSIGN_OR_RETURN(weights.a, loader_.Vector(Name("ssm_a"), spec.heads()));
    } else {
      ASSIGN_OR_RETURN(weights.a, loader_.Flat(Name("ssm_a"), spec.inner, spec.state_dim));
    }
    ASSIGN_OR_RETURN(weights.step_norm, LoadNormOf(spec.norms, "ssm_dt_norm", spec.step_rank));
    ASSIGN_OR_RETURN(weights.b_norm, LoadNormOf(spec.norms, "ssm_b_norm", spec.state_dim));
    ASSIGN_OR_RETURN(weights.c_norm, LoadNormOf(spec.norms, "ssm_c_norm", spec.state_dim));
    ASSIGN_OR_RETURN(mixer->output, load("ssm_out", spec_.hidden, spec.inner));
    return absl::OkStatus();
  }

  absl::StatusOr<DeviceNorm> LoadNormOf(SelectiveSpec::Norms norms, const char* part,
                                        int64_t cols) {
    if (norms == SelectiveSpec::Norms::kNone) return DeviceNorm();
    if (norms == SelectiveSpec::Norms::kPlain) return loader_.PlainNorm(spec_, cols);
    return loader_.LoadNorm(Name(part), spec_, 1, cols);
  }

  absl::Status LoadShortConv(const ShortConvSpec& conv, MixerWeights* mixer) {
    ASSIGN_OR_RETURN(
        mixer->input,
        loader_.LoadProjection({{Name("shortconv.in_proj"), 3 * conv.channels}}, spec_.hidden));
    ASSIGN_OR_RETURN(mixer->conv,
                     loader_.Transposed(Name("shortconv.conv.weight"), conv.channels, conv.width));
    ASSIGN_OR_RETURN(
        mixer->output,
        loader_.LoadProjection({{Name("shortconv.out_proj"), spec_.hidden}}, conv.channels));
    return absl::OkStatus();
  }

  absl::StatusOr<FeedForwardWeights> LoadDense() {
    const FeedForwardSpec& spec = layer_.feed_forward;
    if (layer_.mixes_feed_forward()) {
      return LoadChannelMix(spec_, spec.width, layer_.rwkv()->is_6(), Name(""), &loader_);
    }
    ASSIGN_OR_RETURN(FeedForwardWeights weights, LoadFeedForward(spec.width, spec_.hidden, ""));
    if (spec.sparsity == 0) return weights;
    // Standard deviations are of a sample, norms' of all values; the spread is the sum of `width`
    // squares, which the cut gate is multiplied by.
    const auto width = static_cast<float>(spec.width);
    auto centred = [&](float gain, float shift) -> absl::StatusOr<DeviceNorm> {
      DeviceNorm norm;
      ASSIGN_OR_RETURN(norm.weight, loader_.ToDevice(std::vector<float>(spec.width, gain)));
      ASSIGN_OR_RETURN(norm.bias, loader_.ToDevice(std::vector<float>(spec.width, shift)));
      norm.norm = {.kind = NormKind::kLayer,
                   .weight = norm.weight.tensor,
                   .bias = norm.bias.tensor,
                   .eps = 1e-30f};
      return norm;
    };
    ASSIGN_OR_RETURN(weights.spread, centred(1, 0));
    ASSIGN_OR_RETURN(weights.cut,
                     centred(1 / width, -spec.sparsity * std::sqrt(width / (width - 1)) / width));
    return weights;
  }

  // Number `index` of `count` feed-forwards in the tensors ffn_*<suffix>. Gate and up may be one
  // tensor: ffn_gate_up, or ffn_up of twice the rows.
  absl::StatusOr<FeedForwardWeights> LoadFeedForward(int64_t width, int64_t cols,
                                                     absl::string_view suffix, int64_t count = 1,
                                                     int64_t index = 0) {
    auto part = [&](absl::string_view name, int64_t rows) {
      return Part{Name(absl::StrCat(name, suffix)), rows, {}, count, index};
    };
    auto rows_of = [&](absl::string_view name) {
      return loader_.RowsOf(Name(absl::StrCat(name, suffix, ".weight")));
    };
    std::vector<Part> input = {part("ffn_up", width)};
    if (layer_.feed_forward.gated) {
      if (rows_of("ffn_gate_up") > 0) {
        input = {part("ffn_gate_up", 2 * width)};
        if (layer_.feed_forward.alternate) input[0].runs = {1, 1};
      } else if (rows_of("ffn_gate") == 0 && rows_of("ffn_up") == count * 2 * width) {
        input = {part("ffn_up", 2 * width)};
      } else {
        input = {part("ffn_gate", width), part("ffn_up", width)};
      }
    }
    FeedForwardWeights weights;
    ASSIGN_OR_RETURN(weights.input, loader_.LoadProjection(input, cols));
    Part down = part("ffn_down", cols);
    // Of experts that have no biases it is the router's.
    down.scaled = count == 1 || loader_.Has(down.prefix + ".bias");
    down.adaptable = down.scaled || !loader_.Has(down.prefix + ".scale");
    ASSIGN_OR_RETURN(weights.down, loader_.LoadProjection({down}, width));
    return weights;
  }

  absl::StatusOr<ExpertWeights> LoadExperts(const ExpertSpec& spec) {
    ExpertWeights weights;
    Part router{Name("ffn_gate_inp"), spec.count};
    router.scaled = false;  // ffn_gate_inp.scale is of what it sees
    ASSIGN_OR_RETURN(weights.router, loader_.LoadProjection({router}, spec_.hidden));
    for (const char* name : {"exp_probs_b.bias", "exp_probs_b"}) {  // the latter is Hunyuan 3's
      if (!loader_.Has(Name(name))) continue;
      ASSIGN_OR_RETURN(weights.choice_bias, loader_.Vector(Name(name), spec.count));
      break;
    }
    if (spec.by_token) {
      const std::string name = Name("ffn_gate_tid2eid.weight");
      ASSIGN_OR_RETURN(weights.of_tokens, loader_.HostInts(name, spec_.vocab, spec.router.chosen,
                                                           /*below=*/spec.count));
      RETURN_IF_ERROR(CheckDiffer(name, weights.of_tokens, spec.router.chosen));
    }
    loader_.LeaveOut(Name("exp_probs_b_vl.bias"));  // of images' tokens
    if (layer_.feed_forward.beside) RETURN_IF_ERROR(LoadNormsBeside(&weights));
    if (loader_.Has(Name("ffn_down_exps.scale")) && !loader_.Has(Name("ffn_down_exps.bias"))) {
      ASSIGN_OR_RETURN(weights.scales, loader_.Vector(Name("ffn_down_exps.scale"), spec.count));
    }
    const int64_t cols = spec.latent > 0 ? spec.latent : spec_.hidden;
    if (spec.latent > 0) {
      ASSIGN_OR_RETURN(
          weights.latent_down,
          loader_.LoadProjection({{Name("ffn_latent_down"), spec.latent}}, spec_.hidden));
      ASSIGN_OR_RETURN(
          weights.latent_up,
          loader_.LoadProjection({{Name("ffn_latent_up"), spec_.hidden}}, spec.latent));
    }
    for (int64_t e = 0; e < spec.count; ++e) {
      ASSIGN_OR_RETURN(FeedForwardWeights expert,
                       LoadFeedForward(spec.width, cols, "_exps", spec.count, e));
      weights.experts.push_back(std::move(expert));
    }
    std::vector<const Projection*> input, down;
    for (const FeedForwardWeights& expert : weights.experts) {
      input.push_back(&expert.input);
      down.push_back(&expert.down);
    }
    ASSIGN_OR_RETURN(weights.input, loader_.Together(input));
    ASSIGN_OR_RETURN(weights.down, loader_.Together(down));
    if (spec.shared_width > 0) {
      ASSIGN_OR_RETURN(weights.shared, LoadFeedForward(spec.shared_width, spec_.hidden, "_shexp"));
    }
    if (spec.shared_gate) {
      ASSIGN_OR_RETURN(weights.shared_gate,
                       loader_.LoadProjection({{Name("ffn_gate_inp_shexp"), 1}}, spec_.hidden));
    }
    return weights;
  }

  absl::Status LoadNormsBeside(ExpertWeights* weights) {
    ASSIGN_OR_RETURN(std::vector<float> gain,
                     loader_.HostVector(Name("ffn_gate_inp.scale"), spec_.hidden));
    for (float& value : gain) value /= std::sqrt(static_cast<float>(spec_.hidden));
    DeviceNorm& norm = weights->router_norm;
    ASSIGN_OR_RETURN(norm.weight, loader_.ToDevice(gain));
    norm.norm = {.kind = spec_.norm, .weight = norm.weight.tensor, .eps = spec_.norm_eps};
    ASSIGN_OR_RETURN(weights->norm, LoadNorm("pre_ffw_norm_2"));
    ASSIGN_OR_RETURN(weights->post_norm, LoadNorm("post_ffw_norm_2"));
    ASSIGN_OR_RETURN(weights->other_post_norm, LoadNorm("post_ffw_norm_1"));
    return absl::OkStatus();
  }

  const ModelSpec& spec_;
  const LayerSpec& layer_;
  const int64_t index_;
  WeightLoader& loader_;
};

}  // namespace

absl::Status LoadLayer(const ModelSpec& spec, int64_t index, WeightLoader* loader,
                       LayerWeights* layer) {
  return LayerLoader(spec, index, loader).Load(layer);
}

}  // namespace lm
