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

// Keys or values of one head of a sequence, loaded once for all queries: positions [begin, end).
class HeadOfSequence {
 public:
  template <typename HeadOfBlock>  // HeadOfBlock(block): a KvHeadOfBlock
  HeadOfSequence(int64_t begin, int64_t end, int64_t dim, HeadOfBlock head_of_block)
      : begin_(begin), dim_(dim), values_((end - begin + kSumsAtOnce) * dim), scales_(end - begin) {
    for (int64_t p = begin; p < end; ++p) {
      const KvHeadOfBlock head = head_of_block(p / kKvBlockTokens);
      head.Load(p % kKvBlockTokens, values_.data() + (p - begin) * dim);
      scales_[p - begin] = head.Scale(p % kKvBlockTokens);
    }
  }
  // Of a position, without its scale; those that follow lie behind it, kSumsAtOnce even at the end.
  const float* At(int64_t p) const { return values_.data() + (p - begin_) * dim_; }
  float Scale(int64_t p) const { return scales_[p - begin_]; }
  int64_t dim() const { return dim_; }

 private:
  const int64_t begin_, dim_;
  std::vector<float> values_, scales_;
};

// A KV head of a sequence.
struct KvHead {
  bool has_codes;  // a cache of int16
  HeadOfSequence keys, values;
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

QueryCodes CodesOf(const float* query, const KvHead& head) {
  QueryCodes result;
  if (!head.has_codes) return result;
  result.codes.resize(head.keys.dim());
  result.scale = QuantizeToCodes(query, head.keys.dim(), kMostQueryCode, result.codes.data());
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

// sums += weights * values of positions from `begin` on, which are of one block of a cache of
// int16.
LM_FUSES
void AddCodes(const std::vector<float>& weights, const HeadOfSequence& values, int64_t begin,
              std::vector<float>* sums) {
  const auto count = static_cast<int64_t>(weights.size());
  std::vector<float> scaled;
  for (int64_t i = 0; i < count; ++i) {
    scaled.push_back(weights[i] == 0 ? 0 : weights[i] * values.Scale(begin + i));
  }
  std::vector<int16_t> codes(count);
  const float scale = QuantizeToCodes(scaled.data(), count, kMostCode, codes.data());
  std::vector<int32_t> products(sums->size());
  for (int64_t i = 0; i < count; ++i) {
    const float* loaded = values.At(begin + i);
    for (size_t column = 0; column < sums->size(); ++column) {
      products[column] += codes[i] * static_cast<int32_t>(loaded[column]);
    }
  }
  for (size_t column = 0; column < sums->size(); ++column) {
    float& sum = (*sums)[column];
    sum = std::fma(static_cast<float>(products[column]), scale, sum);
  }
}

// The scores of positions [begin, end), without their softcap and slope.
LM_FUSES
std::vector<float> Score(const Query& query, const KvHead& head, int64_t begin, int64_t end,
                         float option_scale) {
  const QueryCodes codes = CodesOf(query.values, head);
  const float scale = option_scale * codes.scale;
  const int64_t dim = head.keys.dim();
  std::vector<float> scores;
  for (int64_t first = begin; first < end; first += kSumsAtOnce) {
    float dots[kSumsAtOnce] = {};
    if (!head.has_codes) AddProducts(query.values, head.keys.At(first), dim, dim, dots);
    for (int64_t p = first; p < std::min(first + kSumsAtOnce, end); ++p) {
      float& dot = dots[p - first];
      if (head.has_codes) dot = DotOfCodes(codes.codes.data(), head.keys.At(p), dim, kKeyRun);
      scores.push_back(dot * head.keys.Scale(p) * scale);
    }
  }
  return scores;
}

// Positions [begin, end).
LM_FUSES
Partial AttendChunk(const Query& query, const KvHead& head, int64_t begin, int64_t end,
                    const AttentionOptions& options) {
  const float slope = options.slopes.empty() ? 0 : options.slopes.row<float>(0)[query.head];
  Partial partial;
  partial.values.resize(head.values.dim());
  std::vector<float> scores = Score(query, head, begin, end, options.scale);
  for (int64_t p = begin; p < end; ++p) {
    float& score = scores[p - begin];
    if (options.softcap > 0) score = options.softcap * std::tanh(score / options.softcap);
    score -= slope * static_cast<float>(std::abs(query.position - p));
    partial.max = std::max(partial.max, score);
  }
  std::vector<float> of_block;  // the weights of a block's positions, in a cache of int16
  for (int64_t p = begin; p < end; ++p) {
    float weight = std::exp(scores[p - begin] - partial.max);
    partial.sum += weight;
    if (head.has_codes) {
      of_block.push_back(weight);
      if ((p + 1) % kKvBlockTokens != 0 && p + 1 < end) continue;
      const auto count = static_cast<int64_t>(of_block.size());
      AddCodes(of_block, head.values, p + 1 - count, &partial.values);
      of_block.clear();
      continue;
    }
    weight *= head.values.Scale(p);
    const float* values = head.values.At(p);
    for (int64_t i = 0; i < head.values.dim(); ++i) {
      float& value = partial.values[i];
      value = std::fma(weight, values[i], value);
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

// Positions [first, last), chunk by chunk.
Partial Attend(const Query& query, const KvHead& head, int64_t first, int64_t last,
               const AttentionOptions& options) {
  Partial total;
  for (int64_t begin = first; begin < last;) {
    const int64_t end = std::min((begin / kAttentionChunk + 1) * kAttentionChunk, last);
    Partial chunk = AttendChunk(query, head, begin, end, options);
    if (begin == first) {
      total = std::move(chunk);
    } else {
      Merge(chunk, &total);
    }
    begin = end;
  }
  if (!options.sinks.empty()) {
    const Partial sink = {options.sinks.row<float>(0)[query.head], 1,
                          std::vector<float>(head.values.dim())};
    Merge(sink, &total);
  }
  return total;
}

}  // namespace

absl::Status ReferenceBackend::Attention(Tensor q, const KvLayer& layer,
                                         const AttentionOptions& options, Tensor out) {
  RETURN_IF_ERROR(CheckAttention(step_index(), q, layer, options, out));
  const int64_t dim = layer.value_dim;
  const int64_t heads = q.cols / layer.key_dim;
  const int64_t group = heads / layer.kv_heads;
  for (const StepSequence& sequence : step().sequences) {
    const int32_t* blocks = step().blocks[layer.cache_class].data() + sequence.first_block;
    const auto seen_by = [&](int64_t token) {
      return SeenBy(options.window, sequence.first_position + token, sequence.context());
    };
    int64_t begin = sequence.context(), end = 0;  // of what somebody sees
    for (int64_t token = 0; token < sequence.num_tokens; ++token) {
      const auto [first, last] = seen_by(token);
      begin = std::min(begin, first);
      end = std::max(end, last);
    }
    for (int64_t kv_head = 0; begin < end && kv_head < layer.kv_heads; ++kv_head) {
      const KvHead head = {
          layer.dtype == DType::kI16,
          {begin, end, layer.key_dim,
           [&](int64_t i) { return KvHeadOfBlock::Keys(layer, blocks[i], kv_head); }},
          {begin, end, layer.value_dim,
           [&](int64_t i) { return KvHeadOfBlock::Values(layer, blocks[i], kv_head); }}};
      for (int64_t token = 0; token < sequence.num_tokens; ++token) {
        const int64_t row = sequence.first_row + token;
        const auto [first, last] = seen_by(token);
        for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
          const Query query = {q.row<float>(row) + h * layer.key_dim,
                               sequence.first_position + token, h};
          const Partial total = Attend(query, head, first, last, options);
          float* result = out.row<float>(row) + h * dim;
          for (int64_t i = 0; i < dim; ++i) result[i] = total.values[i] / total.sum;
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace lm
