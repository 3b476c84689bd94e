// A row of logits that a token is picked of, as kernels read it: part by part, each a thread
// block's.
#ifndef LM_ENGINE_BACKEND_CUDA_SAMPLED_ROW_H_
#define LM_ENGINE_BACKEND_CUDA_SAMPLED_ROW_H_

#include "engine/backend/cuda/launch.cuh"

namespace lm::cuda {

constexpr int kSampleThreads = 256;
constexpr int kMostParts = kWarp;
constexpr int kMostPartTokens = kMostSampledTokens / kMostParts;

// A part has some thousand logits at least.
constexpr int64_t SampledPartsOf(int64_t cols) {
  const int64_t parts = cols / 2048;
  return parts < 1 ? 1 : parts > kMostParts ? kMostParts : parts;
}

// The rows of a call, and what they share.
struct SampledRows {
  Matrix logits;
  const SampledRow* rows;
  const uint64_t* masks;
  const LogitAdjustment* adjustments;
  int num_parts;
};

// Tokens [begin, end) of one.
struct SampledPart {
  SampledRow row;
  const float* logits;   // the row's, all of them
  const uint64_t* mask;  // or null
  const LogitAdjustment* adjustments;
  int begin, end;
};

__device__ __forceinline__ SampledPart PartOf(const SampledRows& rows, int64_t number, int part) {
  SampledPart result;
  result.row = rows.rows[number];
  result.logits = rows.logits.data + result.row.row * rows.logits.stride;
  result.mask = result.row.mask < 0 ? nullptr : rows.masks + result.row.mask;
  result.adjustments = rows.adjustments + result.row.first_adjustment;
  const int cols = static_cast<int>(rows.logits.cols);
  const int of_part = (cols + rows.num_parts - 1) / rows.num_parts;
  result.begin = part * of_part < cols ? part * of_part : cols;
  result.end = result.begin + of_part < cols ? result.begin + of_part : cols;
  return result;
}

// Sets a bit for each token of the part that has an adjustment. `bits`: shared, room for
// kMostPartTokens; not touched where the row has none. A barrier must follow.
__device__ __forceinline__ void MarkAdjusted(const SampledPart& part, uint32_t* bits) {
  if (part.row.num_adjustments == 0) return;
  for (int word = static_cast<int>(threadIdx.x); word * 32 < part.end - part.begin;
       word += kSampleThreads) {
    uint32_t own = 0;
    for (int i = 0; i < part.row.num_adjustments; ++i) {
      const int place = part.adjustments[i].token - part.begin - word * 32;
      if (place >= 0 && place < 32) own |= 1u << place;
    }
    bits[word] = own;
  }
}

// A token's logit, adjusted. `bits`: what MarkAdjusted has made.
__device__ __forceinline__ double AdjustedOf(const SampledPart& part, const uint32_t* bits,
                                             int token, float logit) {
  if (part.row.num_adjustments == 0) return logit;
  const int place = token - part.begin;
  if ((bits[place / 32] >> (place % 32) & 1) == 0) return logit;
  int i = 0;
  while (part.adjustments[i].token != token) ++i;
  return AdjustedLogit(logit, part.adjustments[i], part.row.repeat_penalty);
}

// The thread's share of the part: calls take(token, its adjusted logit) of what is allowed, and
// see(logit) of all that is looked at, that is, but for words of 64 tokens of which none is
// allowed.
template <typename See, typename Take>
__device__ __forceinline__ void ForTokensOf(const SampledPart& part, const uint32_t* bits, See see,
                                            Take take) {
  constexpr int kAtATime = 4;
  for (int first = part.begin + static_cast<int>(threadIdx.x); first < part.end;
       first += kAtATime * kSampleThreads) {
    float values[kAtATime];
    uint64_t allowed[kAtATime];
#pragma unroll
    for (int j = 0; j < kAtATime; ++j) {
      const int i = first + j * kSampleThreads;
      allowed[j] = i >= part.end ? 0 : part.mask == nullptr ? ~uint64_t{0} : part.mask[i / 64];
      values[j] = allowed[j] == 0 ? 0.0f : part.logits[i];
    }
#pragma unroll
    for (int j = 0; j < kAtATime; ++j) {
      const int i = first + j * kSampleThreads;
      see(values[j]);
      if ((allowed[j] >> (i % 64) & 1) == 0) continue;
      take(i, AdjustedOf(part, bits, i, values[j]));
    }
  }
}

// What drawing needs of each row between its kernels (draw.cu). The first kernel of a call sets
// `sums`, `counts` and `num_listed` to 0.
constexpr int kMostListed = 2048;
struct DrawState {
  uint64_t sums[kNumBuckets];         // of the weights in each bucket
  uint64_t part_weights[kMostParts];  // what is kept for sure
  uint64_t listed[kMostListed];       // the keys among which the last one is that is kept
  uint64_t needed;                    // of these, for top_p
  uint32_t counts[kNumBuckets];
  uint32_t num_listed;
  uint32_t to_list;        // more than kMostListed: the host draws
  uint32_t cuts_by_count;  // top_k cuts: all its tokens are listed
};

// Draws a token of each of the first `count` rows. `greatest`: of each row, adjusted; `picked` has
// the greatest tokens, and -1 where nothing can be drawn, where it is left.
cudaError_t DrawTokens(const Queue& queue, const SampledRows& rows, int64_t count,
                       const double* greatest, DrawState* states, PickedToken* picked);

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_SAMPLED_ROW_H_
