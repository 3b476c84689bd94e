// Pooling: how the hidden states of a text's tokens become one vector.
#ifndef LM_ENGINE_MODEL_POOLING_H_
#define LM_ENGINE_MODEL_POOLING_H_

namespace lm {

enum class Pooling {
  kMean,   // their mean
  kFirst,  // the first token's ("CLS"), where each token sees all the others
  kLast,   // the last token's, which has seen all the others
};

// What a model is to be used for, with the numbers of GGUF's key pooling_type.
enum class PoolingType { kNone, kMean, kFirst, kLast, kRank };

}  // namespace lm

#endif  // LM_ENGINE_MODEL_POOLING_H_
