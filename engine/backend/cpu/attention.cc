// Attention over the paged cache, each shared block read once for all that share it.
//
// The batch's tokens are put in the order of their block tables, so that those which share a prefix
// are neighbours. A query tile is a few tokens in that order, which share a block that all of them
// see, times the query heads of one KV head: its rows read each block together as far as they share
// it. A chunk of 256 positions gives scores
// (rows x 256) as products with the transposed keys, softmax weights, and the weighted values as
// products again (attention_products.h). Each row's numbers are chains of their own, in ascending
// positions, so they depend on neither the tile, nor who shares it, nor who computes which chunk.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "engine/backend/check_arguments.h"
#include "engine/backend/cpu/attention_products.h"
#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cpu/kv_layout.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

static_assert(kScoreStride >= kAttentionChunk && kScoreStride >= kMaxHeadDim);

constexpr int kTileRows = 24;

using Query = AttentionQuery;

// Rows (query, head of the group) of one KV head, queries outermost.
struct QueryTile {
  absl::Span<const Query> queries;
  int32_t kv_head;
  int first_chunk;  // that a query sees
  int end_chunk;
};

// A run of a tile's queries that find the same positions in the same block.
struct Run {
  int first, end;  // queries
  int32_t block;
};

// What each row of a tile has seen: the greatest score, the sum of exp(score - max), and the values
// weighted by the same, in rows of `stride`. A row that has seen nothing has sum 0 and no more.
struct Partial {
  float* max;
  float* sum;
  float* values;
};

class AttentionOp {
 public:
  AttentionOp(const CpuKernels& kernels, Tensor q, const KvLayer& layer,
              const AttentionOptions& options, Tensor out)
      : kernels_(kernels), q_(q), layer_(layer), options_(options), out_(out) {
    group_ = static_cast<int>(q.cols / layer.key_dim / layer.kv_heads);
    tile_queries_ = std::max(1, kTileRows / group_);
    stride_ = (layer.value_dim + kAttentionPanel - 1) / kAttentionPanel * kAttentionPanel;
    products_ = MakeAttentionProducts(kernels, layer, group_, stride_);
  }

  // One KV head after the other, so that what a head's tiles share stays in the caches.
  void MakeTiles(absl::Span<const Query> queries) {
    for (int32_t head = 0; head < layer_.kv_heads; ++head) {
      for (size_t begin = 0, end; begin < queries.size(); begin = end) {
        SeenRange seen = Seen(queries[begin]);  // by one of them
        end = begin + 1;
        while (end < queries.size() && end - begin < size_t(tile_queries_) &&
               Share(queries[begin], queries[end])) {
          const SeenRange next = Seen(queries[end++]);
          seen = {std::min(seen.first, next.first), std::max(seen.end, next.end)};
        }
        tiles_.push_back({queries.subspan(begin, end - begin), head,
                          static_cast<int>(seen.first / kAttentionChunk),
                          static_cast<int>((seen.end - 1) / kAttentionChunk) + 1});
        max_rows_ = std::max(max_rows_, rows(tiles_.back()));
      }
    }
  }
  const std::vector<QueryTile>& tiles() const { return tiles_; }

  // After MakeTiles, for the largest of them.
  AttentionScratch TakeWork(ScratchLayout* layout) const {
    return AttentionScratch::Take(max_rows_, layout);
  }
  Partial TakePartial(ScratchLayout* layout) const {
    return {layout->Take<float>(max_rows_), layout->Take<float>(max_rows_),
            layout->Take<float>(max_rows_ * stride_)};
  }

  // Gathers the tile's queries into `work`; before the tile's AttendChunk.
  void LoadQueries(const QueryTile& tile, const AttentionScratch& work) const;
  // Attends one chunk.
  void AttendChunk(const QueryTile& tile, int chunk, const AttentionScratch& work,
                   const Partial& out) const;
  // Adds `next` to `total`, which precedes it.
  void Merge(const QueryTile& tile, const Partial& next, const Partial& total) const;
  void Finish(const QueryTile& tile, const Partial& total) const;

 private:
  void AddSink(const QueryTile& tile, int row, const Partial& total) const;
  int rows(const QueryTile& tile) const { return static_cast<int>(tile.queries.size()) * group_; }
  int64_t HeadOf(const QueryTile& tile, int row) const {
    return int64_t{tile.kv_head} * group_ + row % group_;
  }
  // The head of a tile's row in q, or in out: of `dim` values.
  float* Head(Tensor matrix, int64_t dim, const QueryTile& tile, int row) const {
    return matrix.row<float>(tile.queries[row / group_].row) + HeadOf(tile, row) * dim;
  }
  SeenRange Seen(const Query& query) const {
    return SeenBy(options_.window, query.position, query.context);
  }
  // Whether both see the first block that both may see. (Those behind a window are nobody's.)
  bool Share(const Query& a, const Query& b) const {
    const SeenRange of_a = Seen(a), of_b = Seen(b);
    const int64_t first = std::max(of_a.first, of_b.first);
    return first < std::min(of_a.end, of_b.end) &&
           a.blocks[first / kKvBlockTokens] == b.blocks[first / kKvBlockTokens];
  }
  // Of the `count` positions from `begin` on, how many come before those that a query sees, and
  // before those behind them.
  int Hidden(const QueryTile& tile, int query, int64_t begin, int count) const {
    return static_cast<int>(std::clamp<int64_t>(Seen(tile.queries[query]).first - begin, 0, count));
  }
  int Visible(const QueryTile& tile, int query, int64_t begin, int count) const {
    return static_cast<int>(std::clamp<int64_t>(Seen(tile.queries[query]).end - begin, 0, count));
  }
  bool Sees(const Query& query, int64_t begin) const {
    const SeenRange seen = Seen(query);
    return seen.end > begin && seen.first < begin + kKvBlockTokens;
  }
  // Calls f(run) for the queries that see something of the block of positions from `begin` on.
  template <typename F>
  void ForRuns(const QueryTile& tile, int64_t begin, F f) const;

  void ComputeScores(const QueryTile& tile, int64_t begin, int visible,
                     const AttentionScratch& work) const;
  // How far behind a block's keys or values lie those that a run's rows read next, of the positions
  // from `begin` on; 0 where its first query sees none. Blocks of a sequence are far from each
  // other in memory.
  int64_t DistanceToKeys(const QueryTile& tile, const Run& run, int64_t begin,
                         const char* from) const {
    const int32_t block = BlockSeen(tile, run, begin);
    return block < 0 ? 0 : KeysOfHead(layer_, block, tile.kv_head) - from;
  }
  int64_t DistanceToValues(const QueryTile& tile, const Run& run, int64_t begin,
                           const char* from) const {
    const int32_t block = BlockSeen(tile, run, begin);
    return block < 0 ? 0 : ValuesOfHead(layer_, block, tile.kv_head) - from;
  }
  int32_t BlockSeen(const QueryTile& tile, const Run& run, int64_t begin) const {
    const Query& query = tile.queries[run.first];
    return Sees(query, begin) ? query.blocks[begin / kKvBlockTokens] : -1;
  }
  // scores = scale * scores, less what the row's slope takes for the distance; of the positions
  // from `first` on.
  void Slope(const QueryTile& tile, int row, int64_t first, int count, float scale,
             float* scores) const;

  const CpuKernels& kernels_;
  Tensor q_;
  const KvLayer& layer_;
  const AttentionOptions& options_;
  Tensor out_;
  int group_;
  int tile_queries_;
  int64_t stride_;
  std::unique_ptr<AttentionProducts> products_;
  std::vector<QueryTile> tiles_;
  int max_rows_ = 0;
};

template <typename F>
void AttentionOp::ForRuns(const QueryTile& tile, int64_t begin, F f) const {
  int count = static_cast<int>(tile.queries.size());
  size_t index = begin / kKvBlockTokens;
  for (int first = 0, end; first < count; first = end) {
    end = first + 1;
    if (!Sees(tile.queries[first], begin)) continue;
    int32_t block = tile.queries[first].blocks[index];
    while (end < count && Sees(tile.queries[end], begin) &&
           tile.queries[end].blocks[index] == block) {
      ++end;
    }
    f(Run{first, end, block});
  }
}

void AttentionOp::LoadQueries(const QueryTile& tile, const AttentionScratch& work) const {
  for (int row = 0; row < rows(tile); ++row) {
    products_->LoadQuery(Head(q_, layer_.key_dim, tile, row), row, work);
  }
}

void AttentionOp::ComputeScores(const QueryTile& tile, int64_t begin, int visible,
                                const AttentionScratch& work) const {
  for (int token = 0; token < visible; token += kKvBlockTokens) {
    const int next = token + kKvBlockTokens;
    ForRuns(tile, begin + token, [&](const Run& run) {
      char* keys = KeysOfHead(layer_, run.block, tile.kv_head);
      products_->Score(
          {.head = keys,
           .distance_to_next = next < visible ? DistanceToKeys(tile, run, begin + next, keys)
                                              : DistanceToValues(tile, run, begin, keys),
           .token = token,
           .first_row = run.first * group_,
           .end_row = run.end * group_},
          work);
    });
  }
}

void AttentionOp::Slope(const QueryTile& tile, int row, int64_t first, int count, float scale,
                        float* scores) const {
  const float slope = options_.slopes.row<float>(0)[HeadOf(tile, row)];
  const int64_t ahead = tile.queries[row / group_].position - first;
  for (int i = 0; i < count; ++i) {
    scores[i] = scores[i] * scale - slope * static_cast<float>(std::abs(ahead - i));
  }
}

void AttentionOp::AttendChunk(const QueryTile& tile, int chunk, const AttentionScratch& work,
                              const Partial& out) const {
  int64_t begin = int64_t{chunk} * kAttentionChunk;
  int most = 0;  // visible positions of the chunk
  for (int query = 0; query < static_cast<int>(tile.queries.size()); ++query) {
    most = std::max(most, Visible(tile, query, begin, kAttentionChunk));
  }
  ComputeScores(tile, begin, most, work);
  for (int row = 0; row < rows(tile); ++row) {
    int visible = Visible(tile, row / group_, begin, kAttentionChunk);
    int hidden = Hidden(tile, row / group_, begin, kAttentionChunk);
    out.sum[row] = 0;
    if (visible <= hidden) continue;
    float* scores = work.scores + row * kScoreStride;
    float scale = options_.scale * products_->QueryScale(row, work);
    if (options_.softcap > 0) {
      kernels_.softcap(scores + hidden, visible - hidden, scale, options_.softcap);
      scale = 1;
    }
    if (!options_.slopes.empty()) {
      Slope(tile, row, begin + hidden, visible - hidden, scale, scores + hidden);
      scale = 1;
    }
    kernels_.softmax(scores + hidden, visible - hidden, scale, &out.max[row], &out.sum[row]);
    // In the blocks where what is seen begins and ends the rest counts for nothing.
    std::fill(scores + hidden / kKvBlockTokens * kKvBlockTokens, scores + hidden, 0.0f);
    std::fill(scores + visible, scores + BlocksFor(visible) * kKvBlockTokens, 0.0f);
    std::memset(out.values + row * stride_, 0, stride_ * sizeof(float));
  }
  for (int token = 0; token < most; token += kKvBlockTokens) {
    const int next = token + kKvBlockTokens;
    ForRuns(tile, begin + token, [&](const Run& run) {
      char* values = ValuesOfHead(layer_, run.block, tile.kv_head);
      products_->AddValues(
          {.head = values,
           .distance_to_next = next < most
                                   ? DistanceToValues(tile, run, begin + next, values)
                                   : DistanceToKeys(tile, run, begin + kAttentionChunk, values),
           .token = token,
           .first_row = run.first * group_,
           .end_row = run.end * group_},
          [&](int row) { return Visible(tile, row / group_, begin + token, kKvBlockTokens); }, work,
          out.values);
    });
  }
}

void AttentionOp::Merge(const QueryTile& tile, const Partial& next, const Partial& total) const {
  for (int row = 0; row < rows(tile); ++row) {
    if (next.sum[row] == 0) continue;
    if (total.sum[row] == 0) {  // what came before lies behind the window
      total.max[row] = next.max[row];
      total.sum[row] = next.sum[row];
      std::memcpy(total.values + row * stride_, next.values + row * stride_,
                  stride_ * sizeof(float));
      continue;
    }
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
    if (!options_.sinks.empty()) AddSink(tile, row, total);
    kernels_.divide(total.values + row * stride_, total.sum[row], layer_.value_dim,
                    Head(out_, layer_.value_dim, tile, row));
  }
}

// Merges the score of the row's head that has no value.
void AttentionOp::AddSink(const QueryTile& tile, int row, const Partial& total) const {
  const float sink = options_.sinks.row<float>(0)[HeadOf(tile, row)];
  const float max = std::max(total.max[row], sink);
  const float keep = std::exp(total.max[row] - max);
  total.sum[row] = total.sum[row] * keep + std::exp(sink - max);
  float* values = total.values + row * stride_;
  kernels_.scale_and_add(values, keep, values, 0, stride_);
}

}  // namespace

// Those of sequences that share blocks side by side.
const std::vector<AttentionQuery>& CpuBackend::SortedQueries(int32_t cache_class) {
  if (sorted_.size() <= static_cast<size_t>(cache_class)) sorted_.resize(cache_class + 1);
  SortedClass& sorted = sorted_[cache_class];
  if (sorted.step == step_index().serial) return sorted.queries;
  const int32_t* blocks = step().blocks[cache_class].data();
  std::vector<const StepSequence*> sequences;
  for (const StepSequence& sequence : step().sequences) sequences.push_back(&sequence);
  auto table = [blocks](const StepSequence& s) {
    return absl::MakeConstSpan(blocks + s.first_block, BlocksFor(s.context()));
  };
  std::stable_sort(
      sequences.begin(), sequences.end(), [&](const StepSequence* a, const StepSequence* b) {
        const auto of_a = table(*a), of_b = table(*b);
        return std::lexicographical_compare(of_a.begin(), of_a.end(), of_b.begin(), of_b.end());
      });
  sorted.queries.clear();
  for (const StepSequence* sequence : sequences) {
    for (int32_t i = 0; i < sequence->num_tokens; ++i) {
      sorted.queries.push_back({blocks + sequence->first_block, int64_t{sequence->first_row} + i,
                                int64_t{sequence->first_position} + i, sequence->context()});
    }
  }
  sorted.step = step_index().serial;
  return sorted.queries;
}

absl::Status CpuBackend::Attention(Tensor q, const KvLayer& layer, const AttentionOptions& options,
                                   Tensor out) {
  RETURN_IF_ERROR(CheckAttention(step_index(), q, layer, options, out));
  AttentionOp op(kernels_, q, layer, options, out);
  op.MakeTiles(SortedQueries(layer.cache_class));
  const std::vector<QueryTile>& tiles = op.tiles();

  ScratchLayout measure_work;
  op.TakeWork(&measure_work);
  ScratchLayout measure_partial;
  op.TakePartial(&measure_partial);
  int64_t worker_bytes = measure_work.used() + 2 * measure_partial.used();
  ASSIGN_OR_RETURN(char* scratch, workers_.Get(pool_.num_threads() * worker_bytes));

  std::vector<std::pair<int, int>> chunks;  // (tile, chunk)
  for (size_t i = 0; i < tiles.size(); ++i) {
    for (int chunk = tiles[i].first_chunk; chunk < tiles[i].end_chunk; ++chunk) {
      chunks.push_back({i, chunk});
    }
  }
  bool too_few_tiles = static_cast<int>(tiles.size()) < 4 * pool_.num_threads();
  if (pool_.num_threads() == 1 || !too_few_tiles || chunks.size() == tiles.size()) {
    ForItems(tiles.size(), [&](int64_t i, int worker) {
      ScratchLayout layout(scratch + worker * worker_bytes);
      AttentionScratch work = op.TakeWork(&layout);
      Partial total = op.TakePartial(&layout), next = op.TakePartial(&layout);
      op.LoadQueries(tiles[i], work);
      op.AttendChunk(tiles[i], tiles[i].first_chunk, work, total);
      for (int chunk = tiles[i].first_chunk + 1; chunk < tiles[i].end_chunk; ++chunk) {
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
    AttentionScratch work = op.TakeWork(&layout);
    op.LoadQueries(tiles[chunks[i].first], work);
    op.AttendChunk(tiles[chunks[i].first], chunks[i].second, work, partials[i]);
  });
  for (size_t i = 0; i < chunks.size(); ++i) {
    const QueryTile& tile = tiles[chunks[i].first];
    size_t first = i - (chunks[i].second - tile.first_chunk);
    if (i > first) op.Merge(tile, partials[i], partials[first]);
    if (chunks[i].second + 1 == tile.end_chunk) op.Finish(tile, partials[first]);
  }
  return absl::OkStatus();
}

}  // namespace lm
