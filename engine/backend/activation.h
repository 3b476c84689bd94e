#ifndef LM_ENGINE_BACKEND_ACTIVATION_H_
#define LM_ENGINE_BACKEND_ACTIVATION_H_

namespace lm {

// What a gate's values go through.
enum class Activation {
  kSilu,      // x / (1 + exp(-x))
  kGeluTanh,  // x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3): 0.5 x (1 + tanh u)
  kSigmoid,   // 1 / (1 + exp(-x))
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_ACTIVATION_H_
