#include "engine/backend/check_arguments.h"

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

absl::Status CheckLayer(absl::string_view op, const KvLayer& layer) {
  bool right =
      (layer.dtype == DType::kF16 || layer.dtype == DType::kF32 || layer.dtype == DType::kI8) &&
      layer.keys != nullptr && layer.values != nullptr && layer.num_blocks > 0 &&
      layer.kv_heads > 0 && layer.head_dim > 0 && layer.head_dim <= kMaxHeadDim;
  if (right) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      op, ": a KV layer must be F16, F32 or I8 with blocks, heads and a head size of 1 to ",
      kMaxHeadDim, ", got ", Traits(layer.dtype).name, " with ", layer.num_blocks, ", ",
      layer.kv_heads, " and ", layer.head_dim));
}

// A query matrix has a whole number of heads to each KV head.
absl::Status CheckQuery(absl::string_view op, Tensor q, const KvLayer& layer) {
  RETURN_IF_ERROR(CheckF32(op, "q", q, -1, -1));
  int64_t kv_cols = int64_t{layer.kv_heads} * layer.head_dim;
  if (q.cols > 0 && q.cols % kv_cols == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": q must have a multiple of ", kv_cols, " columns, got ", q.cols));
}

}  // namespace

absl::Status CheckLoadMatrix(DType dtype, int64_t rows, int64_t cols) {
  const DTypeTraits& traits = Traits(dtype);
  if (dtype == DType::kI8 || dtype == DType::kI32) {
    return absl::InvalidArgumentError(
        absl::StrCat("LoadMatrix: weights must be floats or blocks, got ", traits.name));
  }
  if (rows > 0 && cols > 0 && cols % traits.block_size == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("LoadMatrix: a ", traits.name, " matrix must have rows, and columns that are ",
                   "a multiple of ", traits.block_size, ", got (", rows, ", ", cols, ")"));
}

absl::Status CheckEmbed(const WeightMatrix& w, absl::Span<const int32_t> ids, Tensor out) {
  for (int32_t id : ids) {
    if (id < 0 || id >= w.rows()) {
      return absl::InvalidArgumentError(
          absl::StrCat("Embed: ids must be in [0, ", w.rows(), "), got ", id));
    }
  }
  return CheckF32("Embed", "out", out, static_cast<int64_t>(ids.size()), w.cols());
}

absl::Status CheckRmsNorm(Tensor x, Tensor weight, Tensor out) {
  RETURN_IF_ERROR(CheckF32("RmsNorm", "x", x, -1, -1));
  RETURN_IF_ERROR(CheckF32("RmsNorm", "weight", weight, 1, -1));
  if (weight.cols < 1 || x.cols % weight.cols != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("RmsNorm: a row of ", x.cols, " values is not groups of ", weight.cols));
  }
  return CheckF32("RmsNorm", "out", out, x.rows, x.cols);
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
    RETURN_IF_ERROR(CheckF32("Project", "norm", input.norm, 1, cols));
  }
  if (!bias.empty()) RETURN_IF_ERROR(CheckF32("Project", "bias", bias, 1, w.rows()));
  return CheckF32("Project", "out", out, input.rows(), w.rows());
}

absl::Status CheckRopeAndStoreKv(Tensor q, Tensor k, Tensor v, Tensor rope,
                                 absl::Span<const int64_t> slots, const KvLayer& layer) {
  constexpr absl::string_view kOp = "RopeAndStoreKv";
  RETURN_IF_ERROR(CheckLayer(kOp, layer));
  RETURN_IF_ERROR(CheckQuery(kOp, q, layer));
  int64_t kv_cols = int64_t{layer.kv_heads} * layer.head_dim;
  RETURN_IF_ERROR(CheckF32(kOp, "k", k, q.rows, kv_cols));
  RETURN_IF_ERROR(CheckF32(kOp, "v", v, q.rows, kv_cols));
  RETURN_IF_ERROR(CheckF32(kOp, "rope", rope, q.rows, -1));
  if (rope.cols % 2 != 0 || rope.cols > layer.head_dim) {
    return absl::InvalidArgumentError(absl::StrCat(kOp,
                                                   ": rope must have an even number of at most ",
                                                   layer.head_dim, " columns, got ", rope.cols));
  }
  if (static_cast<int64_t>(slots.size()) != q.rows) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": ", q.rows, " rows need as many slots, got ", slots.size()));
  }
  int64_t num_slots = int64_t{layer.num_blocks} * kKvBlockTokens;
  for (int64_t slot : slots) {
    if (slot < 0 || slot >= num_slots) {
      return absl::InvalidArgumentError(
          absl::StrCat(kOp, ": slots must be in [0, ", num_slots, "), got ", slot));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAttention(Tensor q, absl::Span<const SequenceSpan> sequences,
                            const KvLayer& layer, Tensor out) {
  constexpr absl::string_view kOp = "Attention";
  RETURN_IF_ERROR(CheckLayer(kOp, layer));
  RETURN_IF_ERROR(CheckQuery(kOp, q, layer));
  RETURN_IF_ERROR(CheckF32(kOp, "out", out, q.rows, q.cols));
  for (const SequenceSpan& sequence : sequences) {
    int64_t end_row = int64_t{sequence.first_row} + sequence.num_tokens;
    if (sequence.first_row < 0 || sequence.num_tokens < 0 || end_row > q.rows) {
      return absl::InvalidArgumentError(absl::StrCat(kOp, ": rows must be in [0, ", q.rows,
                                                     "), got [", sequence.first_row, ", ", end_row,
                                                     ")"));
    }
    int64_t context = int64_t{sequence.first_position} + sequence.num_tokens;
    int64_t room = static_cast<int64_t>(sequence.blocks.size()) * kKvBlockTokens;
    if (sequence.first_position < 0 || context > room) {
      return absl::InvalidArgumentError(absl::StrCat(kOp, ": positions must be in [0, ", room,
                                                     "), got [", sequence.first_position, ", ",
                                                     context, ")"));
    }
    for (int32_t block : sequence.blocks) {
      if (block < 0 || block >= layer.num_blocks) {
        return absl::InvalidArgumentError(
            absl::StrCat(kOp, ": blocks must be in [0, ", layer.num_blocks, "), got ", block));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSameShape(absl::string_view op, Tensor a, Tensor b) {
  RETURN_IF_ERROR(CheckF32(op, "the first matrix", a, -1, -1));
  return CheckF32(op, "the other matrix", b, a.rows, a.cols);
}

absl::Status CheckGatherRows(Tensor x, absl::Span<const int32_t> rows, Tensor out) {
  RETURN_IF_ERROR(CheckF32("GatherRows", "x", x, -1, -1));
  for (int32_t row : rows) {
    if (row < 0 || row >= x.rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("GatherRows: rows must be in [0, ", x.rows, "), got ", row));
    }
  }
  return CheckF32("GatherRows", "out", out, static_cast<int64_t>(rows.size()), x.cols);
}

absl::Status CheckKvBlock(const KvLayer& layer, int32_t block) {
  RETURN_IF_ERROR(CheckLayer("KvBlock", layer));
  if (block >= 0 && block < layer.num_blocks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("KvBlock: blocks must be in [0, ", layer.num_blocks, "), got ", block));
}

absl::Status CheckCopyKvBlock(const KvLayer& layer, int32_t from, int32_t to, int32_t tokens) {
  RETURN_IF_ERROR(CheckKvBlock(layer, from));
  RETURN_IF_ERROR(CheckKvBlock(layer, to));
  if (tokens >= 0 && tokens <= kKvBlockTokens) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("CopyKvBlock: tokens must be in [0, ", kKvBlockTokens, "], got ", tokens));
}

}  // namespace lm
