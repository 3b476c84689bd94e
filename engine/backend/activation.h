// Activations: functions that are applied value by value (GatedActivation in backend.h).
#ifndef LM_ENGINE_BACKEND_ACTIVATION_H_
#define LM_ENGINE_BACKEND_ACTIVATION_H_

namespace lm {

// What a value x goes through, before it is multiplied where it is a gate.
enum class Activation {
  kSilu,      // x / (1 + exp(-x))
  kGeluTanh,  // x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3): 0.5 x (1 + tanh u)
  kSigmoid,   // 1 / (1 + exp(-x))
  kIdentity,  // x
  kRelu,      // max(x, 0)
  kRelu2,     // max(x, 0)^2 (So et al. 2021, arXiv 2109.08668)
  kSoftplus,  // log(1 + exp(x))
  kExp,       // exp(min(x, 88)), which is finite
  // Of a gate only, which is bounded, as is what it multiplies (gpt-oss):
  //   g / (1 + exp(-1.702 g)) * (u + 1), g = min(x, 7), u = clamp(up, -7, 7)
  kSwigluOai,
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_ACTIVATION_H_
