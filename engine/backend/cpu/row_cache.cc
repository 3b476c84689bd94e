// Rows that are keys and values at once: pooled, stored, scored and attended to; and the weights
// that balance streams. Pooling is shared by sequence and 64 columns, attention by token and 8
// heads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/backend/check_arguments.h"
#include "engine/backend/cpu/cpu_backend.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// Columns of one part of a state (backend.h, PoolRows).
struct PooledColumns {
  float* max;
  float* sum;
  float* weighted;
  int64_t count;

  void Clear() {
    std::fill_n(max, count, -INFINITY);
    std::fill_n(sum, count, 0.0f);
    std::fill_n(weighted, count, 0.0f);
  }
  void CopyFrom(const PooledColumns& other) {
    std::copy_n(other.max, count, max);
    std::copy_n(other.sum, count, sum);
    std::copy_n(other.weighted, count, weighted);
  }
  void Add(const float* scores, const float* places, const float* values) {
    for (int64_t c = 0; c < count; ++c) {
      const float score = scores[c] + places[c], greatest = std::fmax(max[c], score);
      const float keep = std::exp(max[c] - greatest), add = std::exp(score - greatest);
      max[c] = greatest;
      sum[c] = sum[c] * keep + add;
      weighted[c] = weighted[c] * keep + values[c] * add;
    }
  }
};

void Divide(const PooledColumns& pooled, float* out) {
  for (int64_t c = 0; c < pooled.count; ++c) out[c] = pooled.weighted[c] / pooled.sum[c];
}

// The same of both, the second not empty.
void DivideMerged(const PooledColumns& a, const PooledColumns& b, float* out) {
  for (int64_t c = 0; c < a.count; ++c) {
    const float greatest = std::fmax(a.max[c], b.max[c]);
    const float keep = std::exp(a.max[c] - greatest), add = std::exp(b.max[c] - greatest);
    out[c] = (a.weighted[c] * keep + b.weighted[c] * add) / (a.sum[c] * keep + b.sum[c] * add);
  }
}

const float* RowOf(const int32_t* blocks, const RowLayer& layer, int64_t r) {
  const int64_t last = (r + 1) * layer.every - 1;
  return layer.Row(blocks[last / kKvBlockTokens], last % kKvBlockTokens);
}

// A token of a step, its sequence and its position there.
struct TokenOfStep {
  const StepSequence* sequence;
  int64_t position;
};

std::vector<TokenOfStep> TokensOf(const StepTables& step) {
  std::vector<TokenOfStep> tokens;
  tokens.reserve(step.tokens.size());
  for (const StepSequence& sequence : step.sequences) {
    for (int64_t i = 0; i < sequence.num_tokens; ++i) {
      tokens.push_back({&sequence, sequence.first_position + i});
    }
  }
  return tokens;
}

// Divides n groups of n values by their sums + eps: value i of group g at [g * step + i * by].
void DivideBySums(float* m, int64_t n, int64_t step, int64_t by, float eps) {
  for (int64_t g = 0; g < n; ++g) {
    float sum = eps;
    for (int64_t i = 0; i < n; ++i) sum += m[g * step + i * by];
    for (int64_t i = 0; i < n; ++i) m[g * step + i * by] /= sum;
  }
}

}  // namespace

void CpuBackend::ForWork(int64_t count, int64_t work, absl::FunctionRef<void(int64_t)> body) {
  if (work > kValuesWorthSharing) {
    return ForItems(count, [&body](int64_t item, int) { body(item); });
  }
  for (int64_t item = 0; item < count; ++item) body(item);
}

absl::Status CpuBackend::PoolRows(const PoolInputs& in, const StateLayer& layer, Tensor out) {
  RETURN_IF_ERROR(CheckPoolRows(step_index(), in, layer, out));
  constexpr int64_t kColumns = 64;
  const int64_t dim = out.cols, pieces = (dim + kColumns - 1) / kColumns;
  const int64_t items = static_cast<int64_t>(step().sequences.size()) * pieces;
  // Two exponentials take as long as many products.
  constexpr int64_t kOfAValue = 16;
  ForWork(items, in.values.rows * in.values.cols * kOfAValue, [&](int64_t item) {
    const StepSequence& sequence = step().sequences[item / pieces];
    const int64_t first = item % pieces * kColumns, count = std::min(kColumns, dim - first);
    float* state = layer.data + sequence.state * layer.slot_stride + first;
    auto part = [&](int64_t i) {
      float* at = state + 3 * i * dim;
      return PooledColumns{at, at + dim, at + 2 * dim, count};
    };
    PooledColumns before = part(0), own = before, rest = before;
    if (in.overlaps) own = part(1), rest = part(2);
    for (int64_t t = 0; t < sequence.num_tokens; ++t) {
      const int64_t position = sequence.first_position + t, place = position % in.every;
      const int64_t row = sequence.first_row + t;
      if (place == 0) {
        if (position == 0) {
          before.Clear();
        } else if (in.overlaps) {
          before.CopyFrom(own);
        }
        own.Clear();
        if (in.overlaps) rest.Clear();
      }
      const float* scores = in.scores.row<float>(row) + first;
      const float* places = in.places.row<float>(place) + first;
      const float* values = in.values.row<float>(row) + first;
      own.Add(scores, places, values);
      if (in.overlaps) rest.Add(scores + dim, places + dim, values + dim);
      float* to = out.row<float>(row) + first;
      if (place < in.every - 1) {
        std::fill_n(to, count, 0.0f);
      } else if (in.overlaps) {
        DivideMerged(before, rest, to);
      } else {
        Divide(own, to);
      }
    }
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::StoreRows(Tensor x, const RowLayer& layer) {
  RETURN_IF_ERROR(CheckStoreRows(step_index(), x, layer));
  const std::vector<int64_t>& slots = step_index().slots[layer.cache_class];
  const std::vector<TokenOfStep> tokens = TokensOf(step());
  for (size_t t = 0; t < tokens.size(); ++t) {
    if ((tokens[t].position + 1) % layer.every != 0) continue;
    std::memcpy(layer.Row(slots[t] / kKvBlockTokens, slots[t] % kKvBlockTokens), x.row<float>(t),
                layer.dim * sizeof(float));
  }
  return absl::OkStatus();
}

absl::Status CpuBackend::ScoreRows(Tensor q, Tensor weights, const RowLayer& layer, Tensor out) {
  RETURN_IF_ERROR(CheckScoreRows(step_index(), q, weights, layer, out));
  const std::vector<TokenOfStep> tokens = TokensOf(step());
  ForWork(q.rows, q.rows * q.cols * out.cols, [&](int64_t t) {
    const int32_t* blocks =
        step().blocks[layer.cache_class].data() + tokens[t].sequence->first_block;
    for (int64_t r = 0; r < layer.SeenAt(tokens[t].position); ++r) {
      const float* row = RowOf(blocks, layer, r);
      float sum = 0;
      for (int64_t h = 0; h < weights.cols; ++h) {
        const float dot = kernels_.dot(q.row<float>(t) + h * layer.dim, row, layer.dim);
        sum += weights.row<float>(t)[h] * (dot > 0 ? dot : 0);
      }
      out.row<float>(t)[r] = sum;
    }
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::AttendRows(Tensor q, const RowAttention& in, Tensor out) {
  RETURN_IF_ERROR(CheckAttendRows(step_index(), q, in, out));
  const int64_t dim = in.near.dim, heads = q.cols / dim;
  const std::vector<TokenOfStep> tokens = TokensOf(step());
  auto blocks_of = [&](const RowLayer& layer, int64_t t) {
    return step().blocks[layer.cache_class].data() + tokens[t].sequence->first_block;
  };
  constexpr int64_t kHeads = 8;  // an item: they have the same rows
  const int64_t groups = (heads + kHeads - 1) / kHeads;
  const int64_t most = in.window.size + in.chosen.cols + kKvBlockTokens;
  ForWork(q.rows * groups, q.rows * q.cols * most, [&](int64_t item) {
    const int64_t t = item / groups, position = tokens[t].position;
    std::vector<const float*> rows;
    const SeenRange seen = SeenBy(in.window, position, position + 1);
    for (int64_t p = seen.first; p < seen.end; ++p) {
      rows.push_back(RowOf(blocks_of(in.near, t), in.near, p));
    }
    const bool all = in.far.data != nullptr && in.chosen.empty();
    for (int64_t r = 0; all && r < in.far.SeenAt(position); ++r) {
      rows.push_back(RowOf(blocks_of(in.far, t), in.far, r));
    }
    for (int64_t i = 0; i < in.chosen.cols && in.chosen.row<int32_t>(t)[i] >= 0; ++i) {
      rows.push_back(RowOf(blocks_of(in.far, t), in.far, in.chosen.row<int32_t>(t)[i]));
    }
    const int count = static_cast<int>(rows.size());
    std::vector<float> scores(count);
    const int64_t first = item % groups * kHeads, end = std::min(first + kHeads, heads);
    for (int64_t h = first; h < end; ++h) {
      for (int j = 0; j < count; ++j) {
        scores[j] = kernels_.dot(q.row<float>(t) + h * dim, rows[j], dim);
      }
      float max, sum;
      kernels_.softmax(scores.data(), count, in.scale, &max, &sum);
      float* to = out.row<float>(t) + h * dim;
      kernels_.weighted_sum(rows.data(), scores.data(), count, dim, to);
      if (!in.sinks.empty()) {  // a score without a value
        const float sink = in.sinks.row<float>(0)[h], greatest = std::fmax(max, sink);
        const float keep = std::exp(max - greatest);
        sum = sum * keep + std::exp(sink - greatest);
        kernels_.scale(to, keep, dim);
      }
      kernels_.divide(to, sum, dim, to);
    }
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::BalanceStreams(Tensor x, int32_t streams, int32_t iterations, float eps,
                                        Tensor out) {
  RETURN_IF_ERROR(CheckBalanceStreams(x, streams, iterations, out));
  const int64_t n = streams;
  ForRows(x.rows, x.cols * iterations, [&](int64_t begin, int64_t end) {
    float m[kMostStreams * kMostStreams];
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t s = 0; s < n; ++s) {
        const float* in = x.row<float>(t) + s * n;
        const float max = *std::max_element(in, in + n);
        for (int64_t j = 0; j < n; ++j) m[s * n + j] = std::exp(in[j] - max);
      }
      DivideBySums(m, n, n, 1, 0);
      for (int64_t i = 0; i < n * n; ++i) m[i] += eps;
      for (int32_t i = 0; i < iterations; ++i) {
        if (i > 0) DivideBySums(m, n, n, 1, eps);
        DivideBySums(m, n, 1, n, eps);
      }
      for (int64_t i = 0; i < n * n; ++i) out.row<float>(t)[i % n * n + i / n] = m[i];
    }
  });
  return absl::OkStatus();
}

}  // namespace lm
