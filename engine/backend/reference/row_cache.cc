// Rows that are keys and values at once: pooled, stored, scored and attended to.
#include <cmath>
#include <vector>

#include "engine/backend/check_arguments.h"
#include "engine/backend/reference/reference_backend.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// What a softmax has seen so far, of one column.
struct Pooled {
  float max = -INFINITY, sum = 0, weighted = 0;

  void Add(float score, float value) { Merge({score, 1, value}); }
  void Merge(const Pooled& next) {
    const float greatest = std::fmax(max, next.max);
    if (greatest == -INFINITY) return;
    const float keep = std::exp(max - greatest), add = std::exp(next.max - greatest);
    *this = {greatest, sum * keep + next.sum * add, weighted * keep + next.weighted * add};
  }
};

// One column of a state: [max, sum, weighted][dim] of each part.
class PooledColumn {
 public:
  PooledColumn(float* state, int64_t dim, int64_t c) : state_(state + c), dim_(dim) {}

  Pooled Get(int part) const {
    const float* at = state_ + 3 * part * dim_;
    return {at[0], at[dim_], at[2 * dim_]};
  }
  void Set(int part, const Pooled& pooled) {
    float* at = state_ + 3 * part * dim_;
    at[0] = pooled.max;
    at[dim_] = pooled.sum;
    at[2 * dim_] = pooled.weighted;
  }

 private:
  float* state_;
  int64_t dim_;
};

// The row `r` of a sequence.
const float* RowOf(const StepTables& step, const StepSequence& sequence, const RowLayer& layer,
                   int64_t r) {
  const int64_t last = (r + 1) * layer.every - 1;
  const std::vector<int32_t>& blocks = step.blocks[layer.cache_class];
  return layer.Row(blocks[sequence.first_block + last / kKvBlockTokens], last % kKvBlockTokens);
}

double DotOf(const float* x, const float* y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{x[i]} * y[i];
  return sum;
}

// Calls body(t, sequence, position) for each token of the step.
template <typename Body>
void ForTokens(const StepTables& step, Body body) {
  for (const StepSequence& sequence : step.sequences) {
    for (int64_t i = 0; i < sequence.num_tokens; ++i) {
      body(sequence.first_row + i, sequence, sequence.first_position + i);
    }
  }
}

}  // namespace

absl::Status ReferenceBackend::PoolRows(const PoolInputs& in, const StateLayer& layer, Tensor out) {
  RETURN_IF_ERROR(CheckPoolRows(step_index(), in, layer, out));
  const int64_t dim = out.cols;
  ForTokens(step(), [&](int64_t t, const StepSequence& sequence, int64_t position) {
    const int64_t place = position % in.every;
    for (int64_t c = 0; c < dim; ++c) {
      PooledColumn state(layer.data + sequence.state * layer.slot_stride, dim, c);
      const int parts = in.overlaps ? 3 : 1;
      if (position == 0) {
        for (int i = 0; i < parts; ++i) state.Set(i, Pooled());
      } else if (place == 0) {
        if (in.overlaps) state.Set(0, state.Get(1));
        for (int i = in.overlaps ? 1 : 0; i < parts; ++i) state.Set(i, Pooled());
      }
      for (int i = in.overlaps ? 1 : 0; i < parts; ++i) {
        const int64_t col = i == 2 ? dim + c : c;
        Pooled pooled = state.Get(i);
        pooled.Add(in.scores.row<float>(t)[col] + in.places.row<float>(place)[col],
                   in.values.row<float>(t)[col]);
        state.Set(i, pooled);
      }
      Pooled all = state.Get(0);
      if (in.overlaps) all.Merge(state.Get(2));
      out.row<float>(t)[c] = place == in.every - 1 ? all.weighted / all.sum : 0;
    }
  });
  return absl::OkStatus();
}

absl::Status ReferenceBackend::StoreRows(Tensor x, const RowLayer& layer) {
  RETURN_IF_ERROR(CheckStoreRows(step_index(), x, layer));
  const std::vector<int64_t>& slots = step_index().slots[layer.cache_class];
  ForTokens(step(), [&](int64_t t, const StepSequence&, int64_t position) {
    if ((position + 1) % layer.every != 0) return;
    float* row = layer.Row(slots[t] / kKvBlockTokens, slots[t] % kKvBlockTokens);
    for (int64_t i = 0; i < layer.dim; ++i) row[i] = x.row<float>(t)[i];
  });
  return absl::OkStatus();
}

absl::Status ReferenceBackend::ScoreRows(Tensor q, Tensor weights, const RowLayer& layer,
                                         Tensor out) {
  RETURN_IF_ERROR(CheckScoreRows(step_index(), q, weights, layer, out));
  ForTokens(step(), [&](int64_t t, const StepSequence& sequence, int64_t position) {
    for (int64_t r = 0; r < layer.SeenAt(position); ++r) {
      const float* row = RowOf(step(), sequence, layer, r);
      double sum = 0;
      for (int64_t h = 0; h < weights.cols; ++h) {
        const double dot = DotOf(q.row<float>(t) + h * layer.dim, row, layer.dim);
        sum += weights.row<float>(t)[h] * (dot > 0 ? dot : 0);
      }
      out.row<float>(t)[r] = static_cast<float>(sum);
    }
  });
  return absl::OkStatus();
}

absl::Status ReferenceBackend::AttendRows(Tensor q, const RowAttention& in, Tensor out) {
  RETURN_IF_ERROR(CheckAttendRows(step_index(), q, in, out));
  const int64_t dim = in.near.dim;
  ForTokens(step(), [&](int64_t t, const StepSequence& sequence, int64_t position) {
    std::vector<const float*> rows;
    const SeenRange seen = SeenBy(in.window, position, sequence.context());
    for (int64_t p = seen.first; p < seen.end; ++p) {
      rows.push_back(RowOf(step(), sequence, in.near, p));
    }
    if (in.far.data != nullptr && in.chosen.empty()) {
      for (int64_t r = 0; r < in.far.SeenAt(position); ++r) {
        rows.push_back(RowOf(step(), sequence, in.far, r));
      }
    }
    for (int64_t i = 0; i < in.chosen.cols && in.chosen.row<int32_t>(t)[i] >= 0; ++i) {
      rows.push_back(RowOf(step(), sequence, in.far, in.chosen.row<int32_t>(t)[i]));
    }
    for (int64_t h = 0; h < q.cols / dim; ++h) {
      std::vector<double> scores;
      double max = in.sinks.empty() ? -INFINITY : in.sinks.row<float>(0)[h];
      for (const float* row : rows) {
        scores.push_back(in.scale * DotOf(q.row<float>(t) + h * dim, row, dim));
        max = std::fmax(max, scores.back());
      }
      double sum = in.sinks.empty() ? 0 : std::exp(in.sinks.row<float>(0)[h] - max);
      std::vector<double> total(dim);
      for (size_t j = 0; j < rows.size(); ++j) {
        const double weight = std::exp(scores[j] - max);
        sum += weight;
        for (int64_t i = 0; i < dim; ++i) total[i] += weight * rows[j][i];
      }
      for (int64_t i = 0; i < dim; ++i) {
        out.row<float>(t)[h * dim + i] = static_cast<float>(total[i] / sum);
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace lm
