// Attention of one query at a time: chunk by chunk, then the chunks' merge.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/backend/check_arguments.h"
#include "engine/backend/reference/fused.h"
#include "engine/backend/reference/kv_access.h"
#include "engine/backend/reference/reference_backend.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// What a query has seen of a run of positions: the greatest score, the sum of exp(score - max), and
// the values weighted by the same.
struct Partial {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0;
  std::vector<float> values;
};

// A token's query of one head.
struct Query {
  const float* values;
  int64_t position;
  int64_t head;
};

// Positions [begin, end) of KV head `head`; `blocks` is the sequence's table.
LM_FUSES
Partial AttendChunk(const Query& query, const int32_t* blocks, const KvLayer& layer, int64_t head,
                    int64_t begin, int64_t end, const AttentionOptions& options) {
  const float* q = query.values;
  const float slope = options.slopes.empty() ? 0 : options.slopes.row<float>(0)[query.head];
  Partial partial;
  partial.values.resize(layer.value_dim);
  std::vector<float> scores;
  std::vector<float> loaded(std::max(layer.key_dim, layer.value_dim));
  for (int64_t p = begin; p < end; ++p) {
    const auto keys = KvHeadOfBlock::Keys(layer, blocks[p / kKvBlockTokens], head);
    const int64_t token = p % kKvBlockTokens;
    keys.Load(token, loaded.data());
    float dot = 0;
    for (int64_t i = 0; i < layer.key_dim; ++i) dot = std::fma(q[i], loaded[i], dot);
    float score = dot * keys.Scale(token) * options.scale;
    if (options.softcap > 0) score = options.softcap * std::tanh(score / options.softcap);
    scores.push_back(score - slope * static_cast<float>(std::abs(query.position - p)));
    partial.max = std::max(partial.max, scores.back());
  }
  for (int64_t p = begin; p < end; ++p) {
    float weight = std::exp(scores[p - begin] - partial.max);
    partial.sum += weight;
    const auto values = KvHeadOfBlock::Values(layer, blocks[p / kKvBlockTokens], head);
    const int64_t token = p % kKvBlockTokens;
    weight *= values.Scale(token);
    values.Load(token, loaded.data());
    for (int64_t i = 0; i < layer.value_dim; ++i) {
      float& value = partial.values[i];
      value = std::fma(weight, loaded[i], value);
    }
  }
  return partial;
}

void Merge(const Partial& next, Partial* total) {
  float max = std::max(total->max, next.max);
  float keep = std::exp(total->max - max);
  float add = std::exp(next.max - max);
  total->max = max;
  total->sum = total->sum * keep + next.sum * add;
  for (size_t i = 0; i < total->values.size(); ++i) {
    total->values[i] = total->values[i] * keep + next.values[i] * add;
  }
}

}  // namespace

absl::Status ReferenceBackend::Attention(Tensor q, const KvLayer& layer,
                                         const AttentionOptions& options, Tensor out) {
  RETURN_IF_ERROR(CheckAttention(step_index(), q, layer, options, out));
  const int64_t dim = layer.value_dim;
  const int64_t heads = q.cols / layer.key_dim;
  int64_t group = heads / layer.kv_heads;
  for (const StepSequence& sequence : step().sequences) {
    const int32_t* blocks = step().blocks[layer.cache_class].data() + sequence.first_block;
    for (int64_t token = 0; token < sequence.num_tokens; ++token) {
      int64_t row = sequence.first_row + token;
      const int64_t position = sequence.first_position + token;
      const auto [first, last] = SeenBy(options.window, position, sequence.context());
      for (int64_t h = 0; h < heads; ++h) {
        const Query query = {q.row<float>(row) + h * layer.key_dim, position, h};
        Partial total;
        for (int64_t begin = first; begin < last;) {
          int64_t end = std::min<int64_t>((begin / kAttentionChunk + 1) * kAttentionChunk, last);
          Partial chunk = AttendChunk(query, blocks, layer, h / group, begin, end, options);
          if (begin == first) {
            total = std::move(chunk);
          } else {
            Merge(chunk, &total);
          }
          begin = end;
        }
        if (!options.sinks.empty()) {
          Partial sink = {options.sinks.row<float>(0)[h], 1, std::vector<float>(dim)};
          Merge(sink, &total);
        }
        float* result = out.row<float>(row) + h * dim;
        for (int64_t i = 0; i < dim; ++i) result[i] = total.values[i] / total.sum;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace lm
