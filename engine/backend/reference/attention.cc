// Attention of one query at a time: chunk by chunk, then the chunks' merge.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/backend/check_arguments.h"
#include "engine/backend/quantize_to_codes.h"
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

// A query's codes in a cache of int16, as they are multiplied; and its scale, 1 in other caches.
struct QueryCodes {
  std::vector<int16_t> codes;
  float scale = 1;
};

QueryCodes CodesOf(const float* query, const KvLayer& layer) {
  QueryCodes result;
  if (layer.dtype != DType::kI16) return result;
  result.codes.resize(layer.key_dim);
  result.scale = QuantizeToCodes(query, layer.key_dim, kMostQueryCode, result.codes.data());
  return result;
}

static_assert(int64_t{kMostQueryCode} * kMostCode * kKeyRun <= INT32_MAX &&
              int64_t{kMostCode} * kMostCode * kKvBlockTokens <= INT32_MAX);

// The sum of products of codes: runs of `run`, each exact.
float DotOfCodes(const int16_t* x, const float* codes, int64_t n, int64_t run) {
  float dot = 0;
  for (int64_t begin = 0; begin < n; begin += run) {
    int32_t sum = 0;
    for (int64_t i = begin; i < std::min(begin + run, n); ++i) {
      sum += x[i] * static_cast<int32_t>(codes[i]);
    }
    dot = begin == 0 ? static_cast<float>(sum) : dot + static_cast<float>(sum);
  }
  return dot;
}

// sums += weights * values of positions [begin, end), which are of one block of a cache of int16.
LM_FUSES
void AddCodes(const std::vector<float>& weights, const KvHeadOfBlock& values, int64_t begin,
              std::vector<float>* sums) {
  const auto count = static_cast<int64_t>(weights.size());
  std::vector<float> scaled;
  for (int64_t i = 0; i < count; ++i) {
    scaled.push_back(weights[i] == 0 ? 0 : weights[i] * values.Scale(begin % kKvBlockTokens + i));
  }
  std::vector<int16_t> codes(count);
  const float scale = QuantizeToCodes(scaled.data(), count, kMostCode, codes.data());
  std::vector<int32_t> products(sums->size());
  std::vector<float> loaded(sums->size());
  for (int64_t i = 0; i < count; ++i) {
    values.Load(begin % kKvBlockTokens + i, loaded.data());
    for (size_t column = 0; column < sums->size(); ++column) {
      products[column] += codes[i] * static_cast<int32_t>(loaded[column]);
    }
  }
  for (size_t column = 0; column < sums->size(); ++column) {
    float& sum = (*sums)[column];
    sum = std::fma(static_cast<float>(products[column]), scale, sum);
  }
}

// Positions [begin, end) of KV head `head`; `blocks` is the sequence's table.
LM_FUSES
Partial AttendChunk(const Query& query, const int32_t* blocks, const KvLayer& layer, int64_t head,
                    int64_t begin, int64_t end, const AttentionOptions& options) {
  const float* q = query.values;
  const QueryCodes codes = CodesOf(q, layer);
  const float scale = options.scale * codes.scale;
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
    if (layer.dtype == DType::kI16) {
      dot = DotOfCodes(codes.codes.data(), loaded.data(), layer.key_dim, kKeyRun);
    } else {
      for (int64_t i = 0; i < layer.key_dim; ++i) dot = std::fma(q[i], loaded[i], dot);
    }
    float score = dot * keys.Scale(token) * scale;
    if (options.softcap > 0) score = options.softcap * std::tanh(score / options.softcap);
    scores.push_back(score - slope * static_cast<float>(std::abs(query.position - p)));
    partial.max = std::max(partial.max, scores.back());
  }
  std::vector<float> of_block;  // the weights of a block's positions, in a cache of int16
  for (int64_t p = begin; p < end; ++p) {
    float weight = std::exp(scores[p - begin] - partial.max);
    partial.sum += weight;
    const auto values = KvHeadOfBlock::Values(layer, blocks[p / kKvBlockTokens], head);
    const int64_t token = p % kKvBlockTokens;
    if (layer.dtype == DType::kI16) {
      of_block.push_back(weight);
      if (token + 1 < kKvBlockTokens && p + 1 < end) continue;
      AddCodes(of_block, values, p + 1 - static_cast<int64_t>(of_block.size()), &partial.values);
      of_block.clear();
      continue;
    }
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
