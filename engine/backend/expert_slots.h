// What kernels have to know of a mixture's experts; expert_routes.h has the rest.
#ifndef LM_ENGINE_BACKEND_EXPERT_SLOTS_H_
#define LM_ENGINE_BACKEND_EXPERT_SLOTS_H_

#include <cstdint>

namespace lm {

// What a router's logits l become.
enum class RouterGate {
  kSoftmax,          // p = softmax(l) over all experts
  kSigmoid,          // p = 1 / (1 + exp(-l))
  kSoftmaxOfChosen,  // chosen by l, then p = softmax over the chosen
  kSqrtSoftplus,     // p = sqrt(log(1 + exp(l)))
};

// Slots [first, first + count) of one expert.
struct SlotGroup {
  int32_t expert;
  int32_t first;
  int32_t count;
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_EXPERT_SLOTS_H_
