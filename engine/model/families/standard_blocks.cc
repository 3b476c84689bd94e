// The keys that all families of the llama line write, under the same names.
#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {
namespace {

constexpr int64_t kMaxLayers = 4096;

absl::Status ReadAttention(KeyReader& keys, const ModelSpec& spec, AttentionSpec* attention) {
  ASSIGN_OR_RETURN(attention->heads, keys.Int("attention.head_count", 1, kMaxDim));
  ASSIGN_OR_RETURN(attention->kv_heads,
                   keys.IntOr("attention.head_count_kv", 1, kMaxDim, attention->heads));
  if (attention->heads % attention->kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", keys.Key("attention.head_count_kv"), "' = ", attention->kv_heads, " does not divide '",
        keys.Key("attention.head_count"), "' = ", attention->heads));
  }
  if (!keys.Has("attention.key_length") && spec.hidden % attention->heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", keys.Key("attention.head_count"), "' = ", attention->heads,
                     " does not divide '", keys.Key("embedding_length"), "' = ", spec.hidden));
  }
  ASSIGN_OR_RETURN(attention->head_dim,
                   keys.IntOr("attention.key_length", 1, kMaxDim, spec.hidden / attention->heads));
  ASSIGN_OR_RETURN(int64_t value_length,
                   keys.IntOr("attention.value_length", 1, kMaxDim, attention->head_dim));
  if (value_length != attention->head_dim) {
    return absl::UnimplementedError(absl::StrCat(
        "'", keys.Key("attention.value_length"), "' = ", value_length,
        " differs from the key length ", attention->head_dim, "; such attention is not supported"));
  }
  if (attention->head_dim < 1 || attention->head_dim > kMaxHeadDim ||
      attention->head_dim % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the head size must be even and 2 to ",
                                                   kMaxHeadDim, ", got ", attention->head_dim));
  }
  if (attention->q_cols() > kMaxDim) {
    return absl::InvalidArgumentError(absl::StrCat("heads x head size = ", attention->heads, " x ",
                                                   attention->head_dim, " is more than ", kMaxDim));
  }
  attention->scale = 1.0f / std::sqrt(static_cast<float>(attention->head_dim));
  return absl::OkStatus();
}

// YaRN's keys. Long contexts also sharpen attention: cos and sin grow by 1 + 0.1 ln(scale), or with
// a multiplier m of the logarithm by the ratio of that for 1 and for m (DeepSeek's variant).
absl::Status ReadYarn(KeyReader& keys, int64_t context_length, RopeSpec* rope) {
  if (!(rope->base > 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", keys.Key("rope.freq_base"), "' must be > 1 for YaRN, got ", rope->base));
  }
  YarnSpec yarn;
  ASSIGN_OR_RETURN(const int64_t original, keys.IntOr("rope.scaling.original_context_length", 1,
                                                      int64_t{1} << 30, context_length));
  yarn.original_context = static_cast<double>(original);
  ASSIGN_OR_RETURN(yarn.beta_fast, keys.PositiveOr("rope.scaling.yarn_beta_fast", yarn.beta_fast));
  ASSIGN_OR_RETURN(yarn.beta_slow, keys.PositiveOr("rope.scaling.yarn_beta_slow", yarn.beta_slow));
  ASSIGN_OR_RETURN(const double multiplier,
                   keys.NotNegativeOr("rope.scaling.yarn_log_multiplier", 0));
  ASSIGN_OR_RETURN(const double factor, keys.PositiveOr("rope.scaling.attn_factor", 1));
  auto growth = [rope](double m) {
    return rope->scale > 1 ? 0.1 * m * std::log(rope->scale) + 1 : 1;
  };
  rope->magnitude = factor * growth(1) / (multiplier != 0 ? growth(multiplier) : 1);
  rope->yarn = yarn;
  return absl::OkStatus();
}

absl::Status ReadRope(KeyReader& keys, int64_t head_dim, int64_t context_length, RopeSpec* rope) {
  ASSIGN_OR_RETURN(rope->dim, keys.IntOr("rope.dimension_count", 2, head_dim, head_dim));
  if (rope->dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", keys.Key("rope.dimension_count"), "' must be even, got ", rope->dim));
  }
  ASSIGN_OR_RETURN(rope->base, keys.PositiveOr("rope.freq_base", 10000));
  // As llama.cpp reads them: without a type a factor is linear, and 0 is no factor; "scale_linear"
  // is what converters wrote before.
  std::string scaling = "linear";
  if (keys.Has("rope.scaling.type")) {
    ASSIGN_OR_RETURN(scaling, keys.String("rope.scaling.type"));
  }
  if (scaling != "linear" && scaling != "yarn" && scaling != "none") {
    return absl::UnimplementedError(absl::StrCat("'", keys.Key("rope.scaling.type"), "' = '",
                                                 absl::CHexEscape(scaling.substr(0, 64)),
                                                 "' is not supported (none, linear and yarn are)"));
  }
  ASSIGN_OR_RETURN(const double old_factor, keys.NotNegativeOr("rope.scale_linear", 0));
  ASSIGN_OR_RETURN(const double factor, keys.NotNegativeOr("rope.scaling.factor", old_factor));
  if (scaling != "none" && factor > 0) rope->scale = factor;
  if (scaling == "yarn") return ReadYarn(keys, context_length, rope);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> ReadWindow(KeyReader& keys, int64_t context_length) {
  ASSIGN_OR_RETURN(int64_t window, keys.IntOr("attention.sliding_window", 0, int64_t{1} << 40, 0));
  return window < context_length ? window : 0;
}

absl::Status RefuseWindow(KeyReader& keys, int64_t context_length) {
  ASSIGN_OR_RETURN(const int64_t window, ReadWindow(keys, context_length));
  if (window == 0) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "'", keys.Key("attention.sliding_window"), "' = ", window, ", and the context has ",
      context_length, " tokens; attention to a window is not supported in this architecture"));
}

absl::Status DescribeStandardBlocks(KeyReader& keys, ModelSpec* spec) {
  ASSIGN_OR_RETURN(int64_t experts, keys.IntOr("expert_count", 0, kMaxDim, 0));
  if (experts > 0) {
    return absl::UnimplementedError(absl::StrCat("'", keys.Key("expert_count"), "' = ", experts,
                                                 ": mixtures of experts are not supported"));
  }
  LayerSpec layer;
  AttentionSpec attention;
  ASSIGN_OR_RETURN(const int64_t layers, keys.Int("block_count", 1, kMaxLayers));
  ASSIGN_OR_RETURN(spec->hidden, keys.Int("embedding_length", 1, kMaxDim));
  ASSIGN_OR_RETURN(layer.feed_forward.width, keys.Int("feed_forward_length", 1, kMaxDim));
  ASSIGN_OR_RETURN(spec->context_length, keys.Int("context_length", 1, int64_t{1} << 30));
  ASSIGN_OR_RETURN(double eps, keys.Positive("attention.layer_norm_rms_epsilon"));
  spec->rms_eps = static_cast<float>(eps);
  RETURN_IF_ERROR(ReadAttention(keys, *spec, &attention));
  RETURN_IF_ERROR(
      ReadRope(keys, attention.head_dim, spec->context_length, &spec->ropes.emplace_back()));
  layer.mixer = attention;
  spec->layers.assign(layers, layer);
  return absl::OkStatus();
}

}  // namespace lm
