#include "engine/backend/check_arguments.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// REQUIRES: rows or cols < 0 means any.
absl::Status CheckF32(absl::string_view op, absl::string_view argument, Tensor tensor, int64_t rows,
                      int64_t cols) {
  bool right = tensor.dtype == DType::kF32 && (rows < 0 || tensor.rows == rows) &&
               (cols < 0 || tensor.cols == cols) && (tensor.data != nullptr || tensor.rows == 0);
  if (right) return absl::OkStatus();
  auto size = [](int64_t n) { return n < 0 ? std::string("any") : absl::StrCat(n); };
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": ", argument, " must be F32 (", size(rows), ", ", size(cols), "), got ",
                   Traits(tensor.dtype).name, " (", tensor.rows, ", ", tensor.cols, ")",
                   tensor.data == nullptr ? " without data" : ""));
}

absl::Status CheckStep(absl::string_view op, const StepIndex& step) {
  if (step.tables != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(op, ": no step has begun"));
}

absl::Status CheckLayerShape(absl::string_view op, const KvLayer& layer) {
  bool right =
      (layer.dtype == DType::kF16 || layer.dtype == DType::kF32 || HasScales(layer.dtype)) &&
      layer.keys != nullptr && layer.values != nullptr && layer.num_blocks > 0 &&
      layer.kv_heads > 0 && layer.key_dim > 0 && layer.key_dim <= kMaxHeadDim &&
      layer.value_dim > 0 && layer.value_dim <= kMaxHeadDim &&
      layer.block_stride >= std::max(layer.keys_bytes(), layer.values_bytes());
  if (right) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      op, ": a KV layer must be F16, F32, I8 or I16 with blocks, heads, keys and values of 1 to ",
      kMaxHeadDim, ", its blocks ", std::max(layer.keys_bytes(), layer.values_bytes()),
      " bytes apart or more, got ", Traits(layer.dtype).name, " with ", layer.num_blocks, ", ",
      layer.kv_heads, ", ", layer.key_dim, ", ", layer.value_dim, " and ", layer.block_stride));
}

// The layer, and that the step's block tables of its class lead into it.
absl::Status CheckLayer(absl::string_view op, const StepIndex& step, const KvLayer& layer) {
  RETURN_IF_ERROR(CheckStep(op, step));
  RETURN_IF_ERROR(CheckLayerShape(op, layer));
  if (layer.cache_class < 0 || layer.cache_class >= static_cast<int32_t>(step.last_block.size())) {
    return absl::InvalidArgumentError(absl::StrCat(op, ": the step has block tables of ",
                                                   step.last_block.size(), " classes, got class ",
                                                   layer.cache_class));
  }
  const int32_t last = step.last_block[layer.cache_class];
  if (last < layer.num_blocks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": blocks must be in [0, ", layer.num_blocks, "), got ", last));
}

// Likewise.
absl::Status CheckRowLayer(absl::string_view op, const StepIndex& step, const RowLayer& layer) {
  RETURN_IF_ERROR(CheckStep(op, step));
  const bool divides =
      layer.every > 0 && (kKvBlockTokens % layer.every == 0 || layer.every % kKvBlockTokens == 0);
  if (layer.data == nullptr || layer.dim < 1 || layer.dim > kMaxHeadDim || !divides ||
      layer.block_stride < layer.block_values()) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": a layer of rows must have 1 to ", kMaxHeadDim,
                     " values of each so many tokens as divide ", kKvBlockTokens,
                     " or are a multiple of it, got ", layer.dim, " of ", layer.every));
  }
  const auto classes = static_cast<int32_t>(step.last_block.size());
  if (layer.cache_class < 0 || layer.cache_class >= classes ||
      step.last_block[layer.cache_class] >= layer.num_blocks) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": the step's blocks are not those of rows with ", layer.num_blocks,
                     " blocks of class ", layer.cache_class));
  }
  return absl::OkStatus();
}

// The most rows of the layer that a token of the step sees.
int64_t MostSeen(const StepIndex& step, const RowLayer& layer) {
  int64_t most = 0;
  for (const StepSequence& sequence : step.tables->sequences) {
    if (sequence.num_tokens > 0) most = std::max(most, layer.SeenAt(sequence.context() - 1));
  }
  return most;
}

// That each sequence of the step has a slot of at least `size` values.
absl::Status CheckStates(absl::string_view op, const StepIndex& step, const StateLayer& layer,
                         int64_t size) {
  RETURN_IF_ERROR(CheckStep(op, step));
  if (layer.data == nullptr || layer.slot_stride < size || step.last_state >= layer.num_slots) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": the states must be ", size, " values and up to slot ", step.last_state,
                     ", got ", layer.slot_stride, " values in ", layer.num_slots, " slots"));
  }
  for (const StepSequence& sequence : step.tables->sequences) {
    if (sequence.state < 0) {
      return absl::InvalidArgumentError(absl::StrCat(op, ": a sequence has no state"));
    }
  }
  return absl::OkStatus();
}

// A query matrix has a whole number of heads to each KV head.
absl::Status CheckQuery(absl::string_view op, Tensor q, int64_t rows, const KvLayer& layer) {
  RETURN_IF_ERROR(CheckF32(op, "q", q, rows, -1));
  int64_t kv_cols = int64_t{layer.kv_heads} * layer.key_dim;
  if (q.cols > 0 && q.cols % kv_cols == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": q must have a multiple of ", kv_cols, " columns, got ", q.cols));
}

// A row of x is as many groups as one of `groups` has values.
absl::Status CheckGroups(absl::string_view op, Tensor x, Tensor groups) {
  if (groups.cols > 0 && x.cols % groups.cols == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": a row of ", x.cols, " values is not ", groups.cols, " groups"));
}

}  // namespace

absl::Status CheckLoadMatrix(DType dtype, int64_t rows, int64_t cols) {
  const DTypeTraits& traits = Traits(dtype);
  if (dtype == DType::kI8 || dtype == DType::kI16 || dtype == DType::kI32) {
    return absl::InvalidArgumentError(
        absl::StrCat("LoadMatrix: weights must be floats or blocks, got ", traits.name));
  }
  if (rows > 0 && cols > 0 && cols % traits.block_size == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("LoadMatrix: a ", traits.name, " matrix must have rows, and columns that are ",
                   "a multiple of ", traits.block_size, ", got (", rows, ", ", cols, ")"));
}

absl::Status CheckEmbed(const StepIndex& step, const WeightMatrix& w, Tensor out) {
  RETURN_IF_ERROR(CheckStep("Embed", step));
  if (step.last_token >= w.rows()) {
    return absl::InvalidArgumentError(
        absl::StrCat("Embed: ids must be in [0, ", w.rows(), "), got ", step.last_token));
  }
  return CheckF32("Embed", "out", out, static_cast<int64_t>(step.tables->tokens.size()), w.cols());
}

absl::Status CheckNormalize(Tensor x, const Norm& norm, Tensor out) {
  constexpr absl::string_view kOp = "Normalize";
  RETURN_IF_ERROR(CheckF32(kOp, "x", x, -1, -1));
  RETURN_IF_ERROR(CheckF32(kOp, "weight", norm.weight, 1, -1));
  const int64_t m = norm.weight.cols, n = norm.group_size();
  if (!norm.bias.empty()) RETURN_IF_ERROR(CheckF32(kOp, "bias", norm.bias, 1, m));
  if (m < 1 || x.cols % m != 0 || n < 1 || m % n != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        kOp, ": a row of ", x.cols, " values is not groups of ", n, " with weights of ", m));
  }
  return CheckF32(kOp, "out", out, x.rows, x.cols);
}

absl::Status CheckMatMul(const WeightMatrix& w, Tensor x, Tensor bias, Tensor out) {
  RETURN_IF_ERROR(CheckF32("MatMul", "x", x, -1, w.cols()));
  if (!bias.empty()) RETURN_IF_ERROR(CheckF32("MatMul", "bias", bias, 1, w.rows()));
  return CheckF32("MatMul", "out", out, x.rows, w.rows());
}

absl::Status CheckMatMulColumns(const WeightMatrix& w, Tensor x, absl::Span<const uint64_t> wanted,
                                Tensor out) {
  RETURN_IF_ERROR(CheckMatMul(w, x, /*bias=*/{}, out));
  const int64_t words = (w.rows() + 63) / 64;
  if (static_cast<int64_t>(wanted.size()) == words) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("MatMulColumns: wanted must have ", words, " words, got ", wanted.size()));
}

absl::Status CheckProject(const WeightMatrix& w, const ProductInput& input, Tensor bias,
                          Tensor out) {
  const int64_t cols = w.cols() * (input.kind == ProductInput::Kind::kGated ? 2 : 1);
  RETURN_IF_ERROR(CheckF32("Project", "the input", input.x, -1, cols));
  if (input.kind == ProductInput::Kind::kNormed) {
    RETURN_IF_ERROR(CheckF32("Project", "norm", input.norm.weight, 1, cols));
    RETURN_IF_ERROR(CheckNormalize(input.x, input.norm, input.x));
    if (input.norm.group_size() != cols) {
      return absl::InvalidArgumentError("Project: the norm of an input is of whole rows");
    }
  }
  if (!bias.empty()) RETURN_IF_ERROR(CheckF32("Project", "bias", bias, 1, w.rows()));
  return CheckF32("Project", "out", out, input.rows(), w.rows());
}

absl::Status CheckRopeAndStoreKv(const StepIndex& step, Tensor q, Tensor k, Tensor v,
                                 const Rope& rope, const KvLayer& layer) {
  constexpr absl::string_view kOp = "RopeAndStoreKv";
  RETURN_IF_ERROR(CheckLayer(kOp, step, layer));
  const int64_t tokens = static_cast<int64_t>(step.tables->tokens.size());
  RETURN_IF_ERROR(CheckQuery(kOp, q, tokens, layer));
  if (!k.empty() || !v.empty()) {
    RETURN_IF_ERROR(CheckF32(kOp, "k", k, tokens, int64_t{layer.kv_heads} * layer.key_dim));
    RETURN_IF_ERROR(CheckF32(kOp, "v", v, tokens, int64_t{layer.kv_heads} * layer.value_dim));
    const auto* const keys = k.row<float>(0);
    const auto* const values = v.row<float>(0);
    if (keys < values + v.cols && values < keys + k.cols) {
      return absl::InvalidArgumentError("RopeAndStoreKv: v must not overlap k, which changes");
    }
  }
  if (rope.table < 0) return absl::OkStatus();
  const auto& ropes = step.tables->ropes;
  if (rope.table >= static_cast<int32_t>(ropes.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": the step has ", ropes.size(), " rope tables, got ", rope.table));
  }
  if (ropes[rope.table].dim > layer.key_dim) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": rope must have at most ", layer.key_dim,
                                                   " columns, got ", ropes[rope.table].dim));
  }
  return absl::OkStatus();
}

absl::Status CheckAttention(const StepIndex& step, Tensor q, const KvLayer& layer,
                            const AttentionOptions& options, Tensor out) {
  constexpr absl::string_view kOp = "Attention";
  RETURN_IF_ERROR(CheckLayer(kOp, step, layer));
  RETURN_IF_ERROR(CheckQuery(kOp, q, static_cast<int64_t>(step.tables->tokens.size()), layer));
  if (options.window.size < 0 || !(options.softcap >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": window and softcap must be >= 0, got ",
                                                   options.window.size, " and ", options.softcap));
  }
  const int64_t heads = q.cols / layer.key_dim;
  if (!options.slopes.empty()) RETURN_IF_ERROR(CheckF32(kOp, "slopes", options.slopes, 1, heads));
  if (!options.sinks.empty()) RETURN_IF_ERROR(CheckF32(kOp, "sinks", options.sinks, 1, heads));
  return CheckF32(kOp, "out", out, q.rows, heads * layer.value_dim);
}

absl::Status CheckCausalConv(const StepIndex& step, Tensor x, Tensor weight, Tensor bias,
                             Activation activation, const StateLayer& layer, Tensor out) {
  constexpr absl::string_view kOp = "CausalConv";
  if (activation != Activation::kSilu && activation != Activation::kIdentity) {
    return absl::InvalidArgumentError("CausalConv: the activation must be kSilu or kIdentity");
  }
  RETURN_IF_ERROR(CheckF32(kOp, "weight", weight, -1, -1));
  if (!bias.empty()) RETURN_IF_ERROR(CheckF32(kOp, "bias", bias, 1, weight.cols));
  RETURN_IF_ERROR(CheckStates(kOp, step, layer, (weight.rows - 1) * weight.cols));
  const int64_t tokens = static_cast<int64_t>(step.tables->tokens.size());
  RETURN_IF_ERROR(CheckF32(kOp, "x", x, tokens, weight.cols));
  return CheckF32(kOp, "out", out, tokens, weight.cols);
}

absl::Status CheckDeltaRule(const StepIndex& step, const DeltaRuleInputs& inputs,
                            const StateLayer& layer, Tensor out) {
  constexpr absl::string_view kOp = "DeltaRule";
  const int64_t heads = inputs.heads, key_heads = inputs.key_heads;
  if (heads < 1 || key_heads < 1 || heads % key_heads != 0 || inputs.q.cols % key_heads != 0 ||
      inputs.v.cols % heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        kOp, ": ", inputs.q.cols, " columns of q and ", inputs.v.cols, " of v are not those of ",
        key_heads, " key heads and ", heads, " heads, a multiple of them"));
  }
  RETURN_IF_ERROR(
      CheckStates(kOp, step, layer, heads * (inputs.q.cols / key_heads) * (inputs.v.cols / heads)));
  const int64_t tokens = static_cast<int64_t>(step.tables->tokens.size());
  RETURN_IF_ERROR(CheckF32(kOp, "q", inputs.q, tokens, -1));
  RETURN_IF_ERROR(CheckF32(kOp, "k", inputs.k, tokens, inputs.q.cols));
  RETURN_IF_ERROR(CheckF32(kOp, "v", inputs.v, tokens, -1));
  if (!inputs.skip.empty()) RETURN_IF_ERROR(CheckF32(kOp, "skip", inputs.skip, 1, heads));
  const int64_t keys = inputs.q.cols / key_heads * heads;
  if (inputs.rule == StateRule::kErase) {
    RETURN_IF_ERROR(CheckF32(kOp, "beta", inputs.beta, tokens, keys));
    RETURN_IF_ERROR(CheckF32(kOp, "erase", inputs.erase, tokens, keys));
  } else if (inputs.rule == StateRule::kDelta) {
    RETURN_IF_ERROR(CheckF32(kOp, "beta", inputs.beta, tokens, heads));
  }
  if (inputs.decays_by_token()) {
    // Of a state space log_decay does not say how long the steps are.
    if (inputs.rule == StateRule::kStateSpace) {
      return absl::InvalidArgumentError("DeltaRule: a state space has no log_decay");
    }
    RETURN_IF_ERROR(CheckF32(kOp, "log_decay", inputs.log_decay, tokens, keys));
  } else {
    if (inputs.rule == StateRule::kErase) {
      return absl::InvalidArgumentError("DeltaRule: kErase needs log_decay");
    }
    RETURN_IF_ERROR(CheckF32(kOp, "alpha", inputs.alpha, tokens, heads));
    RETURN_IF_ERROR(CheckF32(kOp, "dt_bias", inputs.dt_bias, 1, heads));
    const bool wide = inputs.a.cols != heads;
    RETURN_IF_ERROR(CheckF32(kOp, "a", inputs.a, 1, wide ? keys : heads));
  }
  return CheckF32(kOp, "out", out, tokens, inputs.v.cols);
}

absl::Status CheckScaleRows(Tensor x, Tensor factors) {
  RETURN_IF_ERROR(CheckF32("ScaleGroups", "x", x, -1, -1));
  RETURN_IF_ERROR(CheckF32("ScaleGroups", "factors", factors, x.rows, -1));
  return CheckGroups("ScaleGroups", x, factors);
}

absl::Status CheckDot(Tensor x, Tensor y, Tensor out) {
  RETURN_IF_ERROR(CheckSameShape("Dot", x, y));
  RETURN_IF_ERROR(CheckF32("Dot", "out", out, x.rows, -1));
  return CheckGroups("Dot", x, out);
}

absl::Status CheckMixStreams(Tensor x, Tensor weights, int32_t streams, Tensor out) {
  constexpr absl::string_view kOp = "MixStreams";
  RETURN_IF_ERROR(CheckF32(kOp, "x", x, -1, -1));
  RETURN_IF_ERROR(CheckF32(kOp, "weights", weights, x.rows, -1));
  if (streams < 1 || x.cols % streams != 0 || weights.cols % streams != 0) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": ", x.cols, " columns with ",
                                                   weights.cols, " weights are not those of ",
                                                   streams, " streams"));
  }
  return CheckF32(kOp, "out", out, x.rows, weights.cols / streams * (x.cols / streams));
}

absl::Status CheckBalanceStreams(Tensor x, int32_t streams, int32_t iterations, Tensor out) {
  constexpr absl::string_view kOp = "BalanceStreams";
  if (streams < 1 || iterations < 1 || streams > kMostStreams) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": streams must be 1 to ", kMostStreams,
                                                   " and iterations 1 or more, got ", streams,
                                                   " and ", iterations));
  }
  RETURN_IF_ERROR(CheckF32(kOp, "x", x, -1, int64_t{streams} * streams));
  return CheckF32(kOp, "out", out, x.rows, x.cols);
}

absl::Status CheckTurn(const StepIndex& step, Tensor x, int64_t head_dim, const Rope& rope) {
  constexpr absl::string_view kOp = "RotateTails";
  RETURN_IF_ERROR(CheckStep(kOp, step));
  RETURN_IF_ERROR(CheckF32(kOp, "x", x, static_cast<int64_t>(step.tables->tokens.size()), -1));
  const auto& ropes = step.tables->ropes;
  if (rope.table < 0 || rope.table >= static_cast<int32_t>(ropes.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": the step has ", ropes.size(), " rope tables, got ", rope.table));
  }
  const int32_t dim = ropes[rope.table].dim;
  if (head_dim >= dim && head_dim > 0 && x.cols % head_dim == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(kOp, ": ", x.cols, " columns are not heads of ",
                                                 head_dim, " values, of which ", dim, " turn"));
}

absl::Status CheckPoolRows(const StepIndex& step, const PoolInputs& inputs, const StateLayer& layer,
                           Tensor out) {
  constexpr absl::string_view kOp = "PoolRows";
  if (inputs.every < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": a run must have tokens, got ", inputs.every));
  }
  const int64_t dim = out.cols, cols = (inputs.overlaps ? 2 : 1) * dim;
  RETURN_IF_ERROR(CheckStates(kOp, step, layer, PoolInputs::StateSize(dim, inputs.overlaps)));
  const int64_t tokens = static_cast<int64_t>(step.tables->tokens.size());
  RETURN_IF_ERROR(CheckF32(kOp, "out", out, tokens, -1));
  RETURN_IF_ERROR(CheckF32(kOp, "values", inputs.values, tokens, cols));
  RETURN_IF_ERROR(CheckF32(kOp, "scores", inputs.scores, tokens, cols));
  return CheckF32(kOp, "places", inputs.places, inputs.every, cols);
}

absl::Status CheckStoreRows(const StepIndex& step, Tensor x, const RowLayer& layer) {
  RETURN_IF_ERROR(CheckRowLayer("StoreRows", step, layer));
  return CheckF32("StoreRows", "x", x, static_cast<int64_t>(step.tables->tokens.size()), layer.dim);
}

// `scores` (T, cols): for each row of the layer that a token sees.
absl::Status CheckScores(absl::string_view op, absl::string_view name, const StepIndex& step,
                         Tensor scores, const RowLayer& layer) {
  const auto tokens = static_cast<int64_t>(step.tables->tokens.size());
  RETURN_IF_ERROR(CheckF32(op, name, scores, tokens, -1));
  const int64_t most = MostSeen(step, layer);
  if (scores.cols >= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": a token sees ", most, " rows, ", name, " has ", scores.cols, " columns"));
}

absl::Status CheckScoreRows(const StepIndex& step, Tensor q, Tensor weights, const RowLayer& layer,
                            Tensor out) {
  constexpr absl::string_view kOp = "ScoreRows";
  RETURN_IF_ERROR(CheckRowLayer(kOp, step, layer));
  const int64_t tokens = static_cast<int64_t>(step.tables->tokens.size());
  RETURN_IF_ERROR(CheckF32(kOp, "weights", weights, tokens, -1));
  RETURN_IF_ERROR(CheckF32(kOp, "q", q, tokens, weights.cols * layer.dim));
  return CheckScores(kOp, "out", step, out, layer);
}

absl::Status CheckChooseRows(const StepIndex& step, Tensor scores, const RowLayer& layer,
                             Tensor chosen) {
  constexpr absl::string_view kOp = "ChooseRows";
  RETURN_IF_ERROR(CheckRowLayer(kOp, step, layer));
  const int64_t tokens = static_cast<int64_t>(step.tables->tokens.size());
  if (chosen.dtype != DType::kI32 || chosen.rows != tokens || chosen.cols < 1 || chosen.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": chosen must be I32 (", tokens, ", any)"));
  }
  if (scores.empty() && MostSeen(step, layer) <= chosen.cols) return absl::OkStatus();
  return CheckScores(kOp, "scores", step, scores, layer);
}

absl::Status CheckAttendRows(const StepIndex& step, Tensor q, const RowAttention& attention,
                             Tensor out) {
  constexpr absl::string_view kOp = "AttendRows";
  const int64_t tokens = static_cast<int64_t>(step.tables->tokens.size());
  RETURN_IF_ERROR(CheckRowLayer(kOp, step, attention.near));
  const int32_t dim = attention.near.dim;
  RETURN_IF_ERROR(CheckF32(kOp, "q", q, tokens, -1));
  bool fits = attention.near.every == 1 && q.cols > 0 && q.cols % dim == 0 &&
              attention.window.size >= 0 && attention.window.causal;
  if (attention.far.data != nullptr) {
    RETURN_IF_ERROR(CheckRowLayer(kOp, step, attention.far));
    fits = fits && attention.far.dim == dim;
  }
  if (!attention.chosen.empty()) {
    fits = fits && attention.far.data != nullptr && attention.chosen.dtype == DType::kI32 &&
           attention.chosen.rows == tokens;
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": near and far rows must have the heads' ", dim,
                     " values, one a token of a causal window and what is chosen of the others"));
  }
  if (!attention.sinks.empty()) {
    RETURN_IF_ERROR(CheckF32(kOp, "sinks", attention.sinks, 1, q.cols / dim));
  }
  return CheckF32(kOp, "out", out, tokens, q.cols);
}

absl::Status CheckRoute(Tensor logits, const Router& router) {
  RETURN_IF_ERROR(CheckF32("Route", "logits", logits, -1, -1));
  const int64_t experts = logits.cols, groups = router.groups;
  const bool grouped = groups >= 1 && experts % groups == 0 && router.chosen_groups >= 1 &&
                       router.chosen_groups <= groups;
  const int64_t open = grouped ? experts / groups * router.chosen_groups : 0;
  if (router.chosen < 1 || router.chosen > open) {
    return absl::InvalidArgumentError(
        absl::StrCat("Route: ", router.chosen, " experts cannot be chosen from ", experts, " in ",
                     router.chosen_groups, " of ", groups, " groups"));
  }
  if (!router.given.empty() &&
      static_cast<int64_t>(router.given.size()) != logits.rows * router.chosen) {
    return absl::InvalidArgumentError(absl::StrCat("Route: ", logits.rows, " rows need ",
                                                   router.chosen, " experts each, got ",
                                                   router.given.size(), " in all"));
  }
  for (const Tensor& values : {router.bias, router.scales}) {
    if (values.empty() || values.cols == experts) continue;
    return absl::InvalidArgumentError(absl::StrCat("Route: there must be a number for each of ",
                                                   experts, " experts, got ", values.cols));
  }
  return absl::OkStatus();
}

absl::Status CheckGroupMatrices(absl::Span<const GroupedMatrix> members) {
  constexpr absl::string_view kOp = "GroupMatrices";
  if (members.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": there must be matrices, got none"));
  }
  const WeightMatrix& first = *members[0].w;
  for (const GroupedMatrix& member : members) {
    const WeightMatrix& w = *member.w;
    if (w.dtype() != first.dtype() || w.rows() != first.rows() || w.cols() != first.cols()) {
      return absl::InvalidArgumentError(absl::StrCat(
          kOp, ": all must be ", Traits(first.dtype()).name, " (", first.rows(), ", ", first.cols(),
          "), got ", Traits(w.dtype()).name, " (", w.rows(), ", ", w.cols(), ")"));
    }
    if (!member.bias.empty()) RETURN_IF_ERROR(CheckF32(kOp, "bias", member.bias, 1, w.rows()));
  }
  return absl::OkStatus();
}

absl::Status CheckProjectExperts(absl::Span<const ExpertProduct> products,
                                 const ExpertRoutes& routes) {
  constexpr absl::string_view kOp = "ProjectExperts";
  for (const ExpertProduct& product : products) {
    const absl::Span<const GroupedMatrix> members = product.group->members();
    if (static_cast<int64_t>(members.size()) != routes.experts) {
      return absl::InvalidArgumentError(absl::StrCat(kOp, ": there must be a matrix for each of ",
                                                     routes.experts, " experts, got ",
                                                     members.size()));
    }
    if (product.input.rows() != routes.num_slots()) {
      return absl::InvalidArgumentError(absl::StrCat(kOp, ": x must have ", routes.num_slots(),
                                                     " rows, got ", product.input.rows()));
    }
    RETURN_IF_ERROR(CheckProject(*members[0].w, product.input, members[0].bias, product.out));
  }
  return absl::OkStatus();
}

absl::Status CheckGatherSlots(Tensor x, const ExpertRoutes& routes, Tensor out) {
  RETURN_IF_ERROR(CheckF32("GatherSlots", "x", x, routes.num_rows, -1));
  return CheckF32("GatherSlots", "out", out, routes.num_slots(), x.cols);
}

absl::Status CheckCombineSlots(Tensor y, const ExpertRoutes& routes, Tensor out) {
  RETURN_IF_ERROR(CheckF32("CombineSlots", "y", y, routes.num_slots(), -1));
  return CheckF32("CombineSlots", "out", out, routes.num_rows, y.cols);
}

absl::Status CheckMoveWeights(const ExpertRoutes& routes, Tensor out) {
  return CheckF32("MoveWeights", "out", out, routes.num_slots(), 1);
}

absl::Status CheckSameShape(absl::string_view op, Tensor a, Tensor b) {
  RETURN_IF_ERROR(CheckF32(op, "the first matrix", a, -1, -1));
  return CheckF32(op, "the other matrix", b, a.rows, a.cols);
}

absl::Status CheckGatherRows(const StepIndex& step, Tensor x, int32_t list, Tensor out) {
  constexpr absl::string_view kOp = "GatherRows";
  RETURN_IF_ERROR(CheckStep(kOp, step));
  RETURN_IF_ERROR(CheckF32(kOp, "x", x, -1, -1));
  if (list < 0 || list >= static_cast<int32_t>(step.last_row.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": the step has ", step.last_row.size(), " row lists, got ", list));
  }
  if (step.last_row[list] >= x.rows) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": rows must be in [0, ", x.rows, "), got ", step.last_row[list]));
  }
  return CheckF32(kOp, "out", out, static_cast<int64_t>(step.tables->row_lists[list].size()),
                  x.cols);
}

}  // namespace lm
