// The arithmetic of the ops that are no products, a value at a time: activations, rotary pairs, and
// attention's bookkeeping. (The device's expf, tanhf and log1pf are within one or two units of the
// last place.)
#ifndef LM_ENGINE_BACKEND_CUDA_OP_ARITHMETIC_H_
#define LM_ENGINE_BACKEND_CUDA_OP_ARITHMETIC_H_

#include "engine/backend/activation.h"
#include "engine/backend/cuda/host_device.cuh"

namespace lm::cuda {

// log(1 + exp(x)).
LM_HOST_DEVICE float Softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

// What a value goes through (activation.h).
LM_HOST_DEVICE float Activate(Activation activation, float x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1.0f + expf(-x));
    case Activation::kGeluTanh:  // 2 sqrt(2 / pi)
      return x / (1.0f + expf(-1.5957691216057308f * (x + 0.044715f * x * x * x)));
    case Activation::kSigmoid:
      return 1.0f / (1.0f + expf(-x));
    case Activation::kIdentity:
      break;
    case Activation::kRelu:
      return x < 0.0f ? 0.0f : x;
    case Activation::kRelu2:
      return x < 0.0f ? 0.0f : x * x;
    case Activation::kSoftplus:
      return Softplus(x);
    case Activation::kExp:
      return expf(x > 88.0f ? 88.0f : x);
    case Activation::kSwigluOai:
      x = x > 7.0f ? 7.0f : x;
      return x / (1.0f + expf(-1.702f * x));
  }
  return x;
}

// What an activated gate is multiplied by.
LM_HOST_DEVICE float GateFactor(Activation activation, float up) {
  if (activation != Activation::kSwigluOai) return up;
  return (up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up) + 1.0f;
}

// (a, b) -> (a cos - b sin, a sin + b cos), each product and sum rounded.
LM_HOST_DEVICE void RotatePair(float cos, float sin, float* a, float* b) {
  const float rotated_a = *a * cos - *b * sin;
  const float rotated_b = *a * sin + *b * cos;
  *a = rotated_a;
  *b = rotated_b;
}

// Where pair i of a head lies: its first value, and how far on its second is.
struct PairPlace {
  int64_t first;
  int64_t step;
};
LM_HOST_DEVICE PairPlace PlaceOfPair(bool halves, int64_t i, int64_t rope_dim) {
  return halves ? PairPlace{i, rope_dim / 2} : PairPlace{2 * i, 1};
}

// A score of attention from q . k.
LM_HOST_DEVICE float CappedScore(float dot, float scale, float softcap) {
  const float score = dot * scale;
  return softcap > 0.0f ? softcap * tanhf(score / softcap) : score;
}

// What a query has seen of a run of positions (backend.h, Attention): the greatest score, the sum
// of exp(score - max), and one of the values weighted by the same.
struct SoftmaxPartial {
  float max;
  float sum;
  float value;
};

// Adds a position of weight exp(score - max); `scaled` is the weight times the scale of the value.
LM_HOST_DEVICE void AddPosition(float weight, float scaled, float value, SoftmaxPartial* partial) {
  partial->sum += weight;
  partial->value = fmaf(scaled, value, partial->value);
}

// Adds the positions that come after those of `total`.
LM_HOST_DEVICE void MergePartial(const SoftmaxPartial& next, SoftmaxPartial* total) {
  const float max = fmaxf(total->max, next.max);
  const float keep = expf(total->max - max);
  const float add = expf(next.max - max);
  total->max = max;
  total->sum = total->sum * keep + next.sum * add;
  total->value = total->value * keep + next.value * add;
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_OP_ARITHMETIC_H_
