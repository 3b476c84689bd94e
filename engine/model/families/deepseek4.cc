// "deepseek4": DeepSeek-V4 (DeepSeek-AI 2026), its text models.
//
// Attention is compressed (CompressedSpec): all layers see a window; some, by their compression
// ratio, runs of 4 tokens, pooled with those before, of which an index chooses (CSA), or all runs
// of 128 (HCA), and turn by a rope of their own then. Four residual streams are joined by
// hyper-connections. All layers have experts, of the first ones by the token, else chosen by the
// root of a softplus with a bias; gates are limited before they are active.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {
namespace {

constexpr int64_t kIndexed = 4;
constexpr int64_t kWide = 128;

// Of which layers with each ratio turn.
struct Ropes {
  int32_t own, back, pooled;
};

// ropes[0] is as the file's keys say, for the layers that pool, but for its base.
absl::Status AddRopes(KeyReader& keys, ModelSpec* spec) {
  RopeSpec rope = spec->ropes[0];
  rope.pairing = RopePairing::kAdjacent;
  rope.factors = rope.long_factors = nullptr;
  rope.magnitude = 1;
  RopeSpec pools = rope;
  ASSIGN_OR_RETURN(pools.base, keys.Positive("attention.compress_rope_freq_base"));
  if (pools.yarn.has_value() && pools.base <= 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", keys.Key("attention.compress_rope_freq_base"), "' must be > 1, got ", pools.base));
  }
  rope.scale = 1;
  rope.yarn.reset();
  spec->ropes = {rope, rope, pools, pools, pools, pools};
  spec->ropes[1].back = spec->ropes[3].back = true;
  spec->ropes[4].behind = kIndexed - 1;
  spec->ropes[5].behind = kWide - 1;
  return absl::OkStatus();
}

Ropes RopesOf(int64_t ratio) {
  if (ratio == 0) return {0, 1, -1};
  return {2, 3, ratio == kIndexed ? 4 : 5};
}

absl::Status AddStreams(KeyReader& keys, ModelSpec* spec) {
  HyperSpec hyper;
  ASSIGN_OR_RETURN(spec->streams, keys.Int("hyper_connection.count", 2, kMostStreams));
  ASSIGN_OR_RETURN(hyper.iterations, keys.Int("hyper_connection.sinkhorn_iterations", 0, 1000));
  hyper.iterations = std::max<int64_t>(hyper.iterations, 1);
  ASSIGN_OR_RETURN(const double eps, keys.NotNegativeOr("hyper_connection.epsilon", 0));
  hyper.eps = static_cast<float>(eps);
  spec->hyper = hyper;
  return absl::OkStatus();
}

absl::Status CheckShape(KeyReader& keys, const AttentionSpec& attention, const RopeSpec& rope) {
  const CompressedSpec& own = *attention.compressed;
  if (attention.kv_heads != 1 || attention.value_dim != attention.key_dim) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", keys.Key("attention.head_count_kv"), "' must be 1, of keys as long as values, got ",
        attention.kv_heads, " of ", attention.key_dim, " and ", attention.value_dim));
  }
  if (attention.heads % own.groups != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", keys.Key("attention.output_group_count"), "' = ", own.groups, " does not divide '",
        keys.Key("attention.head_count"), "' = ", attention.heads));
  }
  if (own.index_dim >= rope.dim) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", keys.Key("attention.indexer.key_length"),
                                                 "' = ", own.index_dim, " is less than the ",
                                                 rope.dim, " values that turn"));
}

absl::StatusOr<AttentionSpec> ReadAttention(KeyReader& keys, const ModelSpec& spec) {
  AttentionSpec attention = *spec.layers[0].attention();
  CompressedSpec own;
  ASSIGN_OR_RETURN(own.q_rank, keys.Int("attention.q_lora_rank", 1, kMaxDim));
  ASSIGN_OR_RETURN(own.groups, keys.Int("attention.output_group_count", 1, attention.heads));
  ASSIGN_OR_RETURN(own.o_rank, keys.Int("attention.output_lora_rank", 1, kMaxDim / own.groups));
  ASSIGN_OR_RETURN(own.index_dim, keys.Int("attention.indexer.key_length", 2, kMaxHeadDim));
  ASSIGN_OR_RETURN(own.index_heads,
                   keys.Int("attention.indexer.head_count", 1, kMaxDim / own.index_dim));
  ASSIGN_OR_RETURN(own.most, keys.Int("attention.indexer.top_k", 1, kMaxDim));
  own.most = std::min(own.most, spec.context_length / kIndexed + 1);
  RETURN_IF_ERROR(keys.Int("attention.sliding_window", 1, int64_t{1} << 40).status());
  ASSIGN_OR_RETURN(attention.window, ReadWindow(keys, spec.context_length));
  attention.sinks = true;
  attention.compressed = own;
  RETURN_IF_ERROR(CheckShape(keys, attention, spec.ropes[0]));
  return attention;
}

}  // namespace

absl::Status DescribeDeepSeek4(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeStandardBlocks(keys, spec));
  // A file without the blocks that predict further tokens does not count them, whatever it says.
  if (!keys.HasTensor(absl::StrCat("blk.", spec->num_layers(), ".nextn.eh_proj.weight"))) {
    const LayerSpec like = spec->layers.back();
    spec->layers.resize(spec->num_layers() + spec->skipped_blocks, like);
    spec->skipped_blocks = 0;
  }
  RETURN_IF_ERROR(DescribeExperts(keys, {.gate = RouterGate::kSqrtSoftplus, .shared = true}, spec));
  RETURN_IF_ERROR(DescribeLimits(keys, spec));
  RETURN_IF_ERROR(AddRopes(keys, spec));
  RETURN_IF_ERROR(AddStreams(keys, spec));
  ASSIGN_OR_RETURN(const AttentionSpec like, ReadAttention(keys, *spec));
  ASSIGN_OR_RETURN(const std::vector<int64_t> ratios,
                   keys.FirstInts("attention.compress_ratios",
                                  spec->num_layers() + spec->skipped_blocks, 0, kWide));
  ASSIGN_OR_RETURN(const int64_t hashed, keys.Int("hash_layer_count", 0, kMaxDim));
  const bool same_limits = !keys.Has("swiglu_clamp_shexp");
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    LayerSpec& layer = spec->layers[i];
    AttentionSpec attention = like;
    CompressedSpec& own = *attention.compressed;
    own.every = ratios[i];
    own.overlaps = own.every == kIndexed;
    if (own.every != kIndexed) own.index_heads = own.index_dim = own.most = 0;
    const Ropes ropes = RopesOf(own.every);
    attention.rope = ropes.own;
    own.back_rope = ropes.back;
    own.pooled_rope = ropes.pooled;
    layer.mixer = attention;
    FeedForwardSpec& feed_forward = layer.feed_forward;
    feed_forward.limits_before = true;
    if (same_limits) feed_forward.limit = feed_forward.expert_limit;
    if (!feed_forward.experts.has_value() ||
        (own.every != 0 && own.every != kIndexed && own.every != kWide)) {
      return absl::UnimplementedError(
          absl::StrCat("layer ", i, " of a '", spec->architecture, "' must have experts and a ",
                       "compression ratio of 0, 4 or 128, got ", own.every));
    }
    feed_forward.experts->by_token = i < hashed;
  }
  return absl::OkStatus();
}

}  // namespace lm
