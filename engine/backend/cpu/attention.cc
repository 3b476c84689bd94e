// Causal attention over the paged cache.
//
// A query tile is a few consecutive tokens of one sequence times the query heads of one KV head:
// its rows read each key and value once for all of them. A chunk of 256 positions gives scores
// (rows x 256) as products with the transposed keys, softmax weights, and the weighted values as
// products again (float_product_kernel.h). Each row's numbers are chains of their own, in ascending
// positions, so they depend on neither the tile nor who computes which chunk.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/backend/check_arguments.h"
#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cpu/kv_layout.h"
#include "engine/base/float16.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

static_assert(kScoreStride == kAttentionChunk);

constexpr int kTileRows = 24;
constexpr int kPanel = 16;

// Rows (token, head of the group) of one tile, tokens outermost.
struct QueryTile {
  const SequenceSpan* sequence;
  int32_t first_token;  // within the sequence's span
  int32_t tokens;
  int32_t kv_head;

  int64_t last_position() const {
    return int64_t{sequence->first_position} + first_token + tokens - 1;
  }
  int num_chunks() const { return static_cast<int>(last_position() / kAttentionChunk) + 1; }
};

// What each row of a tile has seen: the greatest score, the sum of exp(score - max), and the values
// weighted by the same, in rows of `stride`. A row that has seen nothing has sum 0.
struct Partial {
  float* max;
  float* sum;
  float* values;
};

class AttentionOp {
 public:
  AttentionOp(const CpuKernels& kernels, Tensor q, const KvLayer& layer, float scale, Tensor out)
      : kernels_(kernels), q_(q), layer_(layer), scale_(scale), out_(out) {
    group_ = static_cast<int>(q.cols / layer.head_dim / layer.kv_heads);
    tile_tokens_ = std::max(1, kTileRows / group_);
    max_rows_ = tile_tokens_ * group_;
    stride_ = (layer.head_dim + kPanel - 1) / kPanel * kPanel;
  }

  std::vector<QueryTile> MakeTiles(absl::Span<const SequenceSpan> sequences) const {
    std::vector<QueryTile> tiles;
    for (const SequenceSpan& sequence : sequences) {
      for (int32_t token = 0; token < sequence.num_tokens; token += tile_tokens_) {
        int32_t tokens = std::min(tile_tokens_, sequence.num_tokens - token);
        for (int32_t head = 0; head < layer_.kv_heads; ++head) {
          tiles.push_back({&sequence, token, tokens, head});
        }
      }
    }
    return tiles;
  }

  Partial TakePartial(ScratchLayout* layout) const {
    return {layout->Take<float>(max_rows_), layout->Take<float>(max_rows_),
            layout->Take<float>(max_rows_ * stride_)};
  }

  // What one worker needs beside partials.
  struct Work {
    float* queries;  // [row tile][head_dim][rows of it]
    float* scores;   // [row][kScoreStride]
    float* tail;     // a block's last value columns, where they are fewer than 16
  };
  Work TakeWork(ScratchLayout* layout) const {
    return {layout->Take<float>(max_rows_ * layer_.head_dim),
            layout->Take<float>(max_rows_ * kScoreStride),
            layout->Take<float>(kKvBlockTokens * kPanel)};
  }

  // Attends one chunk.
  void AttendChunk(const QueryTile& tile, int chunk, const Work& work, const Partial& out) const;
  // Adds `next` to `total`, which precedes it.
  void Merge(const QueryTile& tile, const Partial& next, const Partial& total) const;
  void Finish(const QueryTile& tile, const Partial& total) const;

 private:
  int rows(const QueryTile& tile) const { return tile.tokens * group_; }
  int64_t batch_row(const QueryTile& tile, int row) const {
    return int64_t{tile.sequence->first_row} + tile.first_token + row / group_;
  }
  // The head of a tile's row in q and in out.
  float* Head(Tensor matrix, const QueryTile& tile, int row) const {
    int64_t head = int64_t{tile.kv_head} * group_ + row % group_;
    return matrix.row<float>(batch_row(tile, row)) + head * layer_.head_dim;
  }
  const char* BlockData(const QueryTile& tile, void* data, int64_t position) const {
    return KvHead(layer_, data, tile.sequence->blocks[position / kKvBlockTokens], tile.kv_head);
  }
  // Positions of a chunk that a row sees: 0 to kAttentionChunk.
  int Visible(const QueryTile& tile, int row, int64_t begin) const {
    int64_t position = int64_t{tile.sequence->first_position} + tile.first_token + row / group_;
    return static_cast<int>(std::clamp<int64_t>(position + 1 - begin, 0, kAttentionChunk));
  }

  void ComputeScores(const QueryTile& tile, int64_t begin, int visible, const Work& work) const;
  // values of the rows [first_row, end_row) += weights * V over the chunk's tokens [first, end).
  void AddValues(const QueryTile& tile, int64_t begin, int first, int end, int first_row,
                 int end_row, const Work& work, float* values) const;

  const CpuKernels& kernels_;
  Tensor q_;
  const KvLayer& layer_;
  float scale_;
  Tensor out_;
  int group_;
  int32_t tile_tokens_;
  int max_rows_;
  int64_t stride_;
};

void AttentionOp::ComputeScores(const QueryTile& tile, int64_t begin, int visible,
                                const Work& work) const {
  constexpr int kBlockPanels = kKvBlockTokens / kPanel;
  int64_t dim = layer_.head_dim;
  int num_rows = rows(tile);
  FloatTile choice = kernels_.ChooseFloatTile(num_rows, kBlockPanels);
  for (int first = 0; first < num_rows; first += choice.tokens) {
    int count = std::min(choice.tokens, num_rows - first);
    float* queries = work.queries + first * dim;
    for (int t = 0; t < count; ++t) {
      const float* head = Head(q_, tile, first + t);
      for (int64_t i = 0; i < dim; ++i) queries[i * count + t] = head[i];
    }
  }
  for (int token = 0; token < visible; token += kKvBlockTokens) {
    const char* keys = BlockData(tile, layer_.keys, begin + token);
    for (int first = 0; first < num_rows; first += choice.tokens) {
      for (int panel = 0; panel < kBlockPanels; panel += choice.panels) {
        kernels_.float_product({.type = layer_.dtype,
                                .w = keys + RowBytes(layer_.dtype, panel * kPanel),
                                .k_stride = kKvBlockTokens,
                                .panel_stride = kPanel,
                                .panels = choice.panels,
                                .x = work.queries + first * dim,
                                .packed = true,
                                .tokens = std::min(choice.tokens, num_rows - first),
                                .k = dim,
                                .acc = work.scores + first * kScoreStride + token + panel * kPanel,
                                .acc_stride = kScoreStride,
                                .accumulate = Accumulate::kReplace});
      }
    }
  }
}

void AttentionOp::AddValues(const QueryTile& tile, int64_t begin, int first, int end, int first_row,
                            int end_row, const Work& work, float* values) const {
  int64_t dim = layer_.head_dim;
  int full_panels = static_cast<int>(dim / kPanel);
  int tail = static_cast<int>(dim % kPanel);
  for (int token = first, next; token < end; token = next) {
    next = std::min(end, (token / kKvBlockTokens + 1) * kKvBlockTokens);
    int64_t in_block = token % kKvBlockTokens;
    const char* rows_of_v =
        BlockData(tile, layer_.values, begin + token) + RowBytes(layer_.dtype, in_block * dim);
    FloatProduct product = {.type = layer_.dtype,
                            .w = nullptr,
                            .k_stride = dim,
                            .panel_stride = kPanel,
                            .panels = 1,
                            .x = nullptr,
                            .packed = false,
                            .tokens = 0,
                            .k = next - token,
                            .acc = nullptr,
                            .acc_stride = stride_,
                            .accumulate = Accumulate::kContinue};
    auto multiply = [&](int panel, FloatTile choice) {
      product.panels = choice.panels;
      for (int row = first_row; row < end_row; row += choice.tokens) {
        product.tokens = std::min(choice.tokens, end_row - row);
        product.x = work.scores + row * kScoreStride + token;
        product.acc = values + row * stride_ + panel * kPanel;
        kernels_.float_product(product);
      }
    };
    for (int panel = 0; panel < full_panels; panel += product.panels) {
      product.w = rows_of_v + RowBytes(layer_.dtype, panel * kPanel);
      multiply(panel, kernels_.ChooseFloatTile(end_row - first_row, full_panels - panel));
    }
    if (tail == 0) continue;
    // The last columns, where a vector would reach into the next row: copied out, zeros beside.
    for (int64_t i = 0; i < product.k; ++i) {
      int64_t at = i * dim + full_panels * kPanel;
      for (int j = 0; j < tail; ++j) {
        work.tail[i * kPanel + j] =
            layer_.dtype == DType::kF32
                ? reinterpret_cast<const float*>(rows_of_v)[at + j]
                : HalfToFloat(reinterpret_cast<const uint16_t*>(rows_of_v)[at + j]);
      }
      std::fill(work.tail + i * kPanel + tail, work.tail + (i + 1) * kPanel, 0.0f);
    }
    product.type = DType::kF32;
    product.w = work.tail;
    product.k_stride = kPanel;
    multiply(full_panels, kernels_.ChooseFloatTile(end_row - first_row, 1));
  }
}

void AttentionOp::AttendChunk(const QueryTile& tile, int chunk, const Work& work,
                              const Partial& out) const {
  int64_t begin = int64_t{chunk} * kAttentionChunk;
  int num_rows = rows(tile);
  ComputeScores(tile, begin, Visible(tile, num_rows - 1, begin), work);
  int first_row = num_rows;  // rows before it see nothing of this chunk
  for (int row = num_rows - 1; row >= 0; --row) {
    int visible = Visible(tile, row, begin);
    out.sum[row] = 0;
    if (visible == 0) continue;
    first_row = row;
    kernels_.softmax(work.scores + row * kScoreStride, visible, scale_, &out.max[row],
                     &out.sum[row]);
  }
  std::memset(out.values + first_row * stride_, 0,
              (num_rows - first_row) * stride_ * sizeof(float));
  // What all rows see, together; then what later tokens see beyond, row by row: no row may touch
  // values behind its own position, not even with weight zero.
  int common = Visible(tile, first_row, begin);
  AddValues(tile, begin, 0, common, first_row, num_rows, work, out.values);
  for (int row = first_row; row < num_rows; ++row) {
    AddValues(tile, begin, common, Visible(tile, row, begin), row, row + 1, work, out.values);
  }
}

void AttentionOp::Merge(const QueryTile& tile, const Partial& next, const Partial& total) const {
  for (int row = 0; row < rows(tile); ++row) {
    if (next.sum[row] == 0) continue;
    float max = std::max(total.max[row], next.max[row]);
    float keep = std::exp(total.max[row] - max);
    float add = std::exp(next.max[row] - max);
    total.max[row] = max;
    total.sum[row] = total.sum[row] * keep + next.sum[row] * add;
    kernels_.scale_and_add(total.values + row * stride_, keep, next.values + row * stride_, add,
                           stride_);
  }
}

void AttentionOp::Finish(const QueryTile& tile, const Partial& total) const {
  for (int row = 0; row < rows(tile); ++row) {
    kernels_.divide(total.values + row * stride_, total.sum[row], layer_.head_dim,
                    Head(out_, tile, row));
  }
}

}  // namespace

absl::Status CpuBackend::Attention(Tensor q, absl::Span<const SequenceSpan> sequences,
                                   const KvLayer& layer, float scale, Tensor out) {
  RETURN_IF_ERROR(CheckAttention(q, sequences, layer, out));
  AttentionOp op(kernels_, q, layer, scale, out);
  std::vector<QueryTile> tiles = op.MakeTiles(sequences);

  ScratchLayout measure_work;
  op.TakeWork(&measure_work);
  ScratchLayout measure_partial;
  op.TakePartial(&measure_partial);
  int64_t worker_bytes = measure_work.used() + 2 * measure_partial.used();
  ASSIGN_OR_RETURN(char* scratch, workers_.Get(pool_.num_threads() * worker_bytes));

  std::vector<std::pair<int, int>> chunks;  // (tile, chunk)
  for (size_t i = 0; i < tiles.size(); ++i) {
    for (int chunk = 0; chunk < tiles[i].num_chunks(); ++chunk) chunks.push_back({i, chunk});
  }
  bool too_few_tiles = static_cast<int>(tiles.size()) < 4 * pool_.num_threads();
  if (pool_.num_threads() == 1 || !too_few_tiles || chunks.size() == tiles.size()) {
    ForItems(tiles.size(), [&](int64_t i, int worker) {
      ScratchLayout layout(scratch + worker * worker_bytes);
      AttentionOp::Work work = op.TakeWork(&layout);
      Partial total = op.TakePartial(&layout), next = op.TakePartial(&layout);
      op.AttendChunk(tiles[i], 0, work, total);
      for (int chunk = 1; chunk < tiles[i].num_chunks(); ++chunk) {
        op.AttendChunk(tiles[i], chunk, work, next);
        op.Merge(tiles[i], next, total);
      }
      op.Finish(tiles[i], total);
    });
    return absl::OkStatus();
  }

  // Few tiles with long contexts: share the chunks among the threads, then merge.
  ASSIGN_OR_RETURN(char* memory, inputs_.Get(chunks.size() * measure_partial.used()));
  std::vector<Partial> partials;
  for (size_t i = 0; i < chunks.size(); ++i) {
    ScratchLayout layout(memory + i * measure_partial.used());
    partials.push_back(op.TakePartial(&layout));
  }
  ForItems(chunks.size(), [&](int64_t i, int worker) {
    ScratchLayout layout(scratch + worker * worker_bytes);
    op.AttendChunk(tiles[chunks[i].first], chunks[i].second, op.TakeWork(&layout), partials[i]);
  });
  for (size_t i = 0; i < chunks.size(); ++i) {
    const QueryTile& tile = tiles[chunks[i].first];
    size_t first = i - chunks[i].second;
    if (i > first) op.Merge(tile, partials[i], partials[first]);
    if (chunks[i].second + 1 == tile.num_chunks()) op.Finish(tile, partials[first]);
  }
  return absl::OkStatus();
}

}  // namespace lm
