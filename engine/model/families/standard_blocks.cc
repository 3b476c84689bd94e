// What families have in common (families.h): heads, rotations, windows, states and experts as the
// usual keys of a GGUF file describe them.
#include <algorithm>
#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {
namespace {

constexpr int64_t kMaxLayers = 4096;
constexpr char kWindowPattern[] = "attention.sliding_window_pattern";
constexpr char kWindowBase[] = "rope.freq_base_swa";

// The heads of each block's queries; where each block has a number of its own, those without KV
// heads may have 0.
absl::StatusOr<std::vector<int64_t>> ReadHeadCounts(KeyReader& keys, int64_t blocks) {
  constexpr char kKey[] = "attention.head_count";
  if (keys.IsArray(kKey)) return keys.IntsOr(kKey, blocks, 0, kMaxDim, 1);
  ASSIGN_OR_RETURN(const int64_t heads, keys.Int(kKey, 1, kMaxDim));
  return std::vector<int64_t>(blocks, heads);
}

// All but kv_heads, which can differ between layers, as can `heads`.
absl::Status ReadHeads(KeyReader& keys, const ModelSpec& spec, absl::Span<const int64_t> heads,
                       AttentionSpec* attention) {
  const auto first = std::find_if(heads.begin(), heads.end(), [](int64_t n) { return n > 0; });
  if (first == heads.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", keys.Key("attention.head_count"), "' must be 1 or more, got 0"));
  }
  attention->heads = *first;
  if (!keys.Has("attention.key_length") && spec.hidden % attention->heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", keys.Key("attention.head_count"), "' = ", attention->heads,
                     " does not divide '", keys.Key("embedding_length"), "' = ", spec.hidden));
  }
  ASSIGN_OR_RETURN(attention->key_dim,
                   keys.IntOr("attention.key_length", 1, kMaxDim, spec.hidden / attention->heads));
  ASSIGN_OR_RETURN(attention->value_dim,
                   keys.IntOr("attention.value_length", 1, kMaxDim, attention->key_dim));
  for (const int64_t dim : {attention->key_dim, attention->value_dim}) {
    if (dim >= 1 && dim <= kMaxHeadDim && dim % 2 == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the head size must be even and 2 to ", kMaxHeadDim, ", got ", dim));
  }
  const int64_t most = *std::max_element(heads.begin(), heads.end());
  if (most * std::max(attention->key_dim, attention->value_dim) > kMaxDim) {
    return absl::InvalidArgumentError(absl::StrCat("heads x head size = ", most, " x ",
                                                   attention->key_dim, " is more than ", kMaxDim));
  }
  attention->scale = 1.0f / std::sqrt(static_cast<float>(attention->key_dim));
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
  // 0 says nothing of YaRN's; every context of LongRoPE's is longer.
  yarn.original_context =
      static_cast<double>(rope->original_context > 0 ? rope->original_context : context_length);
  ASSIGN_OR_RETURN(yarn.beta_fast, keys.PositiveOr("rope.scaling.yarn_beta_fast", yarn.beta_fast));
  ASSIGN_OR_RETURN(yarn.beta_slow, keys.PositiveOr("rope.scaling.yarn_beta_slow", yarn.beta_slow));
  ASSIGN_OR_RETURN(const double multiplier,
                   keys.NotNegativeOr("rope.scaling.yarn_log_multiplier", 0));
  auto growth = [rope](double m) {
    return rope->scale > 1 ? 0.1 * m * std::log(rope->scale) + 1 : 1;
  };
  const double magnitude = growth(1) / (multiplier != 0 ? growth(multiplier) : 1);
  constexpr char kExtrapolation[] = "rope.scaling.yarn_ext_factor";
  ASSIGN_OR_RETURN(const double ext, keys.Has(kExtrapolation) ? keys.Float(kExtrapolation)
                                                              : absl::StatusOr<double>(1));
  if (ext != 1 && ext != -1) {
    return absl::UnimplementedError(
        absl::StrCat("'", keys.Key(kExtrapolation), "' = ", ext, " is not supported, 1 is"));
  }
  rope->magnitude *= magnitude;
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
  ASSIGN_OR_RETURN(rope->original_context, keys.IntOr("rope.scaling.original_context_length", 0,
                                                      int64_t{1} << 30, context_length));
  // As llama.cpp reads them: without a type a factor is linear, and 0 is no factor; "scale_linear"
  // is what converters wrote before.
  std::string scaling = "linear";
  if (keys.Has("rope.scaling.type")) {
    ASSIGN_OR_RETURN(scaling, keys.String("rope.scaling.type"));
  }
  if (scaling != "linear" && scaling != "yarn" && scaling != "longrope" && scaling != "none") {
    return absl::UnimplementedError(absl::StrCat(
        "'", keys.Key("rope.scaling.type"), "' = '", absl::CHexEscape(scaling.substr(0, 64)),
        "' is not supported (none, linear, yarn and longrope are)"));
  }
  ASSIGN_OR_RETURN(const double old_factor, keys.NotNegativeOr("rope.scale_linear", 0));
  ASSIGN_OR_RETURN(const double factor, keys.NotNegativeOr("rope.scaling.factor", old_factor));
  if (scaling != "none" && factor > 0) rope->scale = factor;
  ASSIGN_OR_RETURN(rope->magnitude, keys.PositiveOr("rope.scaling.attn_factor", 1));
  rope->factors = "rope_freqs";
  if (scaling == "longrope") UseLongRope(rope);
  if (scaling == "yarn") return ReadYarn(keys, context_length, rope);
  return absl::OkStatus();
}

// Some converters (EXAONE's) write nothing of the blocks that are no layers. Empty where there is
// no such key.
absl::StatusOr<std::vector<bool>> ReadPatternArray(KeyReader& keys, const ModelSpec& spec) {
  return keys.Bools(kWindowPattern, spec.num_layers() + spec.skipped_blocks, spec.num_layers());
}

absl::StatusOr<double> ReadEps(KeyReader& keys, NormKind norm) {
  constexpr char kRmsEps[] = "attention.layer_norm_rms_epsilon";
  constexpr char kEps[] = "attention.layer_norm_epsilon";
  // Not every converter of Nemotron-H writes it under the name of its norms.
  const bool under_other_name = !keys.Has(kRmsEps) && keys.Has(kEps);
  return keys.Positive(norm == NormKind::kRms && !under_other_name ? kRmsEps : kEps);
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

absl::StatusOr<std::vector<bool>> ReadWindowPattern(KeyReader& keys, const ModelSpec& spec,
                                                    int64_t period, bool full_first) {
  if (keys.IsArray(kWindowPattern)) return ReadPatternArray(keys, spec);
  ASSIGN_OR_RETURN(period, keys.IntOr(kWindowPattern, 1, kMaxDim, period));
  std::vector<bool> windowed;
  for (int64_t i = 0; i < spec.num_layers() + spec.skipped_blocks; ++i) {
    windowed.push_back(full_first ? i % period != 0 : i % period < period - 1);
  }
  return windowed;
}

absl::Status DescribeWindows(KeyReader& keys, int64_t period, double base, ModelSpec* spec) {
  ASSIGN_OR_RETURN(const int64_t window, ReadWindow(keys, spec->context_length));
  ASSIGN_OR_RETURN(const int64_t declared,
                   keys.IntOr("attention.sliding_window", 0, int64_t{1} << 40, 0));
  ASSIGN_OR_RETURN(const std::vector<bool> windowed, ReadWindowPattern(keys, *spec, period));
  if (declared == 0) return absl::OkStatus();
  const RopeSpec& rope = spec->ropes[0];
  spec->ropes.push_back(
      {.dim = rope.dim, .base = base > 0 ? base : rope.base, .pairing = rope.pairing});
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    if (!windowed[i]) continue;
    spec->layers[i].attention()->window = window;
    spec->layers[i].attention()->rope = 1;
  }
  return absl::OkStatus();
}

absl::Status AddWindowRope(KeyReader& keys, double base, ModelSpec* spec) {
  const RopeSpec& rope = spec->ropes[0];
  RopeSpec windowed = {.dim = rope.dim, .base = rope.base, .pairing = rope.pairing};
  ASSIGN_OR_RETURN(windowed.base, keys.PositiveOr(kWindowBase, base > 0 ? base : rope.base));
  const int64_t most = spec->layers[0].attention()->key_dim;
  ASSIGN_OR_RETURN(windowed.dim, keys.IntOr("rope.dimension_count_swa", 2, most, rope.dim));
  if (windowed.dim % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("'", keys.Key("rope.dimension_count_swa"),
                                                   "' must be even, got ", windowed.dim));
  }
  spec->ropes.push_back(windowed);
  return absl::OkStatus();
}

absl::StatusOr<int32_t> AddWindowBase(KeyReader& keys, ModelSpec* spec) {
  if (!keys.Has(kWindowBase)) return 0;
  RopeSpec windowed = spec->ropes[0];
  ASSIGN_OR_RETURN(windowed.base, keys.Positive(kWindowBase));
  if (windowed.yarn.has_value() && !(windowed.base > 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", keys.Key(kWindowBase), "' must be > 1 for YaRN, got ", windowed.base));
  }
  spec->ropes.push_back(windowed);
  return static_cast<int32_t>(spec->ropes.size()) - 1;
}

void IgnoreWindowBase(KeyReader& keys) { keys.Has(kWindowBase); }

absl::StatusOr<std::vector<bool>> NeedWindowPattern(KeyReader& keys, const ModelSpec& spec) {
  ASSIGN_OR_RETURN(std::vector<bool> windowed, ReadPatternArray(keys, spec));
  if (!windowed.empty()) return windowed;
  return absl::InvalidArgumentError(
      absl::StrCat("key \"", keys.Key(kWindowPattern), "\" is not in the file"));
}

absl::Status ShareKeysAndValues(KeyReader& keys, const std::vector<bool>& windowed, int64_t own,
                                ModelSpec* spec) {
  for (int64_t i = own; i < spec->num_layers(); ++i) {
    AttentionSpec& attention = *spec->layers[i].attention();
    const int64_t source = own - (windowed[i] ? 2 : 1);
    if (source < 0 || windowed[source] != windowed[i] ||
        spec->layers[source].attention()->kv_heads != attention.kv_heads) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", keys.Key("attention.shared_kv_layers"), "' = ",
          static_cast<int64_t>(windowed.size()) - own, ": layer ", i, " has none to share with"));
    }
    attention.kv_source = source;
  }
  return absl::OkStatus();
}

absl::Status DescribeStatedWindows(KeyReader& keys, double base, ModelSpec* spec) {
  ASSIGN_OR_RETURN(const int64_t declared,
                   keys.Int("attention.sliding_window", 1, int64_t{1} << 40));
  ASSIGN_OR_RETURN(const std::vector<bool> windowed, NeedWindowPattern(keys, *spec));
  RETURN_IF_ERROR(AddWindowRope(keys, base, spec));
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    if (!windowed[i]) continue;
    spec->layers[i].attention()->window = declared < spec->context_length ? declared : 0;
    spec->layers[i].attention()->rope = 1;
  }
  return absl::OkStatus();
}

void UseLongRope(RopeSpec* rope) {
  rope->factors = "rope_factors_short";
  rope->long_factors = "rope_factors_long";
}

absl::StatusOr<std::vector<int64_t>> ReadRopeSections(KeyReader& keys) {
  constexpr char kSections[] = "rope.dimension_sections";
  if (!keys.Has(kSections)) return std::vector<int64_t>();
  return keys.IntsOr(kSections, 4, 0, kMaxHeadDim, 0, "sections");
}

void UseRopeSections(const std::vector<int64_t>& sections, bool interleaved, RopeSpec* rope) {
  const int64_t turning = sections[0] + sections[1] + sections[2];
  for (int64_t i = 0; i < rope->dim / 2; ++i) {
    const int64_t place = turning + sections[3] > 0 ? i % (turning + sections[3]) : 0;
    if (interleaved ? place >= 3 * sections[place % 3] : place >= turning) rope->still.push_back(i);
  }
}

absl::StatusOr<int64_t> DescribeSizes(KeyReader& keys, ModelSpec* spec, NormKind norm) {
  ASSIGN_OR_RETURN(const int64_t blocks, keys.Int("block_count", 1, kMaxLayers));
  ASSIGN_OR_RETURN(spec->hidden, keys.Int("embedding_length", 1, kMaxDim));
  ASSIGN_OR_RETURN(spec->context_length, keys.Int("context_length", 1, int64_t{1} << 30));
  spec->norm = norm;
  ASSIGN_OR_RETURN(double eps, ReadEps(keys, norm));
  spec->norm_eps = static_cast<float>(eps);
  ASSIGN_OR_RETURN(spec->skipped_blocks, keys.IntOr("nextn_predict_layers", 0, kMaxDim, 0));
  if (spec->skipped_blocks >= blocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", keys.Key("nextn_predict_layers"), "' = ", spec->skipped_blocks,
                     " leaves no layer of '", keys.Key("block_count"), "' = ", blocks));
  }
  return blocks - spec->skipped_blocks;
}

absl::Status DescribeStandardBlocks(KeyReader& keys, ModelSpec* spec, NormKind norm) {
  LayerSpec layer;
  AttentionSpec attention;
  ASSIGN_OR_RETURN(const int64_t layers, DescribeSizes(keys, spec, norm));
  const int64_t blocks = layers + spec->skipped_blocks;
  ASSIGN_OR_RETURN(const std::vector<int64_t> heads, ReadHeadCounts(keys, blocks));
  RETURN_IF_ERROR(ReadHeads(keys, *spec, heads, &attention));
  RETURN_IF_ERROR(
      ReadRope(keys, attention.key_dim, spec->context_length, &spec->ropes.emplace_back()));
  ASSIGN_OR_RETURN(std::vector<int64_t> kv_heads,
                   keys.IntsOr("attention.head_count_kv", blocks, 0, kMaxDim, 0));
  if (!keys.Has("attention.head_count_kv")) kv_heads = heads;
  ASSIGN_OR_RETURN(const std::vector<int64_t> widths,
                   keys.IntsOr("feed_forward_length", blocks, 0, kMaxDim, 0));
  for (int64_t i = 0; i < layers; ++i) {
    layer.feed_forward.width = widths[i];
    attention.heads = heads[i];
    attention.kv_heads = kv_heads[i];
    if (attention.kv_heads > 0 &&
        (attention.heads == 0 || attention.heads % attention.kv_heads != 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", keys.Key("attention.head_count_kv"), "' = ", attention.kv_heads,
          " does not divide '", keys.Key("attention.head_count"), "' = ", attention.heads));
    }
    layer.mixer = attention;
    spec->layers.push_back(layer);
  }
  return absl::OkStatus();
}

absl::StatusOr<RecurrentSizes> ReadRecurrentSizes(KeyReader& keys) {
  RecurrentSizes sizes;
  ASSIGN_OR_RETURN(sizes.conv_width, keys.Int("ssm.conv_kernel", 2, 64));
  ASSIGN_OR_RETURN(sizes.state_dim, keys.Int("ssm.state_size", 1, 4096));
  ASSIGN_OR_RETURN(sizes.heads, keys.Int("ssm.time_step_rank", 1, kMaxDim));
  ASSIGN_OR_RETURN(sizes.groups, keys.Int("ssm.group_count", 1, kMaxDim));
  ASSIGN_OR_RETURN(const int64_t inner, keys.Int("ssm.inner_size", 1, kMaxDim));
  if (sizes.heads % sizes.groups != 0 || inner % sizes.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", keys.Key("ssm.time_step_rank"), "' = ", sizes.heads,
                     " must be a multiple of '", keys.Key("ssm.group_count"), "' = ", sizes.groups,
                     " and divide '", keys.Key("ssm.inner_size"), "' = ", inner));
  }
  sizes.head_dim = inner / sizes.heads;
  const int64_t state = inner * sizes.state_dim;
  if (inner + 2 * sizes.groups * sizes.state_dim > kMaxDim || state > kMaxDim) {
    return absl::InvalidArgumentError(
        absl::StrCat("a recurrent state of ", state, " values is more than ", kMaxDim));
  }
  return sizes;
}

absl::StatusOr<StateSpaceSpec> ReadStateSpace(KeyReader& keys) {
  ASSIGN_OR_RETURN(const RecurrentSizes sizes, ReadRecurrentSizes(keys));
  return StateSpaceSpec{.heads = sizes.heads,
                        .groups = sizes.groups,
                        .state_dim = sizes.state_dim,
                        .head_dim = sizes.head_dim,
                        .conv_width = sizes.conv_width};
}

absl::Status DescribeExperts(KeyReader& keys, const ExpertDefaults& defaults, ModelSpec* spec) {
  ExpertSpec experts;
  Router& router = experts.router;
  ASSIGN_OR_RETURN(experts.count, keys.IntOr("expert_count", 0, kMaxDim, 0));
  if (experts.count == 0 || (defaults.one_is_none && experts.count == 1)) {
    // What others have of the same converter, as Granite 4's dense models and Youtu-LLM.
    for (const char* name :
         {"expert_feed_forward_length", "expert_shared_count", "expert_shared_feed_forward_length",
          "expert_gating_func", "expert_group_count", "expert_group_used_count",
          "expert_weights_norm", "expert_weights_scale", "leading_dense_block_count"}) {
      keys.Has(name);
    }
    if (experts.count == 1) keys.Has("expert_used_count");
    return absl::OkStatus();
  }
  const int64_t width = spec->Widest([](const LayerSpec& l) { return l.feed_forward.width; });
  const int64_t blocks = spec->num_layers() + spec->skipped_blocks;
  // A layer without a feed-forward may say 0, of both.
  constexpr char kUsed[] = "expert_used_count";
  if (!keys.IsArray(kUsed)) RETURN_IF_ERROR(keys.Int(kUsed, 1, experts.count).status());
  ASSIGN_OR_RETURN(const std::vector<int64_t> chosen,
                   keys.IntsOr(kUsed, blocks, 0, experts.count, 0));
  ASSIGN_OR_RETURN(std::vector<int64_t> widths,
                   keys.IntsOr("expert_feed_forward_length", blocks, 0, kMaxDim,
                               defaults.share_width ? 0 : width));
  for (int64_t i = 0; defaults.share_width && i < spec->num_layers(); ++i) {
    if (widths[i] > 0 || chosen[i] == 0) continue;
    const FeedForwardSpec& feed_forward = spec->layers[i].feed_forward;
    widths[i] = (feed_forward.exists() ? feed_forward.width : width) / chosen[i];
  }
  // Blocks without experts may say 0.
  experts.width = *std::max_element(widths.begin(), widths.end());
  ASSIGN_OR_RETURN(experts.latent, keys.IntOr("moe_latent_size", 0, spec->hidden, 0));
  ASSIGN_OR_RETURN(const int64_t gate, keys.IntOr("expert_gating_func", 0, 4, 0));
  router.gate = gate == 0 ? defaults.gate : static_cast<RouterGate>(gate - 1);
  ASSIGN_OR_RETURN(router.normalised, keys.BoolOr("expert_weights_norm", defaults.normalised));
  ASSIGN_OR_RETURN(const double scale, keys.NotNegativeOr("expert_weights_scale", 0));
  if (scale != 0) router.scale = static_cast<float>(scale);
  ASSIGN_OR_RETURN(const int64_t groups, keys.IntOr("expert_group_count", 0, experts.count, 0));
  if (groups > 1) {
    ASSIGN_OR_RETURN(const int64_t open, keys.Int("expert_group_used_count", 1, groups));
    router.groups = static_cast<int32_t>(groups);
    router.chosen_groups = static_cast<int32_t>(open);
    const int64_t most = *std::max_element(chosen.begin(), chosen.end());
    if (experts.count % groups != 0 || most > experts.count / groups * open) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", keys.Key("expert_group_count"), "' = ", groups, ": ", most, " of ",
                       experts.count, " experts cannot be chosen in ", open, " groups"));
    }
  } else {
    RETURN_IF_ERROR(keys.IntOr("expert_group_used_count", 0, 1, 0).status());  // they are all one
  }
  if (defaults.shared) {
    ASSIGN_OR_RETURN(const int64_t shared,
                     keys.IntOr("expert_shared_count", 0, kMaxDim, defaults.shared_count));
    ASSIGN_OR_RETURN(experts.shared_width, keys.IntOr("expert_shared_feed_forward_length", 0,
                                                      kMaxDim, shared * experts.width));
    if (defaults.shared_whole && experts.shared_width == 0) experts.shared_width = width;
    experts.shared_gate = defaults.shared_gate && experts.shared_width > 0;
  }
  ASSIGN_OR_RETURN(const int64_t dense, keys.IntOr("leading_dense_block_count", 0, kMaxLayers, 0));
  for (int64_t i = dense; i < spec->num_layers(); ++i) {
    FeedForwardSpec& feed_forward = spec->layers[i].feed_forward;
    if (widths[i] == 0 && chosen[i] == 0 && !feed_forward.exists()) continue;
    if (widths[i] == 0 || chosen[i] == 0) {
      const char* const key = widths[i] == 0 ? "expert_feed_forward_length" : kUsed;
      return absl::InvalidArgumentError(
          absl::StrCat("'", keys.Key(key), "' of layer ", i, " must be 1 or more, got 0"));
    }
    feed_forward.experts = experts;
    feed_forward.experts->width = widths[i];
    feed_forward.experts->router.chosen = static_cast<int32_t>(chosen[i]);
  }
  return absl::OkStatus();
}

absl::Status DescribeLimits(KeyReader& keys, ModelSpec* spec) {
  const int64_t blocks = spec->num_layers() + spec->skipped_blocks;
  ASSIGN_OR_RETURN(const std::vector<float> experts, keys.NotNegatives("swiglu_clamp_exp", blocks));
  ASSIGN_OR_RETURN(const std::vector<float> others,
                   keys.NotNegatives("swiglu_clamp_shexp", blocks));
  // llama.cpp takes less for none.
  auto limit = [](float value) { return value > 1e-6f ? value : 0.0f; };
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    spec->layers[i].feed_forward.expert_limit = limit(experts[i]);
    spec->layers[i].feed_forward.limit = limit(others[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<AttentionSpec> ReadLatent(KeyReader& keys, const ModelSpec& spec, int64_t key_dim,
                                         int64_t value_dim) {
  const RopeSpec& rope = spec.ropes[0];
  const auto layer = std::find_if(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& l) {
    return l.attention() != nullptr && l.attention()->kv_heads > 0;
  });
  const int64_t first = layer == spec.layers.end() ? 0 : layer - spec.layers.begin();
  AttentionSpec attention = *spec.layers[first].attention();
  LatentSpec latent = {.value_dim = value_dim};
  ASSIGN_OR_RETURN(const int64_t rank, keys.Int("attention.kv_lora_rank", 2, kMaxHeadDim));
  ASSIGN_OR_RETURN(const int64_t q_rank, keys.IntOr("attention.q_lora_rank", 0, kMaxDim, 0));
  if (keys.HasTensor(absl::StrCat("blk.", first, ".attn_q_a.weight"))) latent.q_rank = q_rank;
  latent.nope = key_dim - rope.dim;
  attention.kv_heads = 1;
  attention.key_dim = rank + rope.dim;
  attention.value_dim = rank;
  attention.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(key_dim)));
  if (latent.nope < 1 || attention.key_dim > kMaxHeadDim) {
    return absl::InvalidArgumentError(absl::StrCat(
        "latent attention of rank ", rank, " with ", rope.dim, " turning values of ", key_dim,
        " has keys of ", attention.key_dim, " values, at most ", kMaxHeadDim, " are supported"));
  }
  attention.latent = latent;
  return attention;
}

}  // namespace lm
