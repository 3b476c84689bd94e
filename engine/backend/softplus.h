// Softplus, with the same bits on every processor.
#ifndef LM_ENGINE_BACKEND_SOFTPLUS_H_
#define LM_ENGINE_BACKEND_SOFTPLUS_H_

#include <cmath>

namespace lm {

// log(1 + e^x). In double, rounded once: float log1p of one C library differs from one processor to
// the next.
inline float Softplus(float x) {
  return x > 20 ? x : static_cast<float>(std::log1p(std::exp(double{x})));
}

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_SOFTPLUS_H_
