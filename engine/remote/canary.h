// A first question of which there is only one right answer: whether a server keeps to a kind of
// constraint, or ignores it in silence.
#ifndef LM_ENGINE_REMOTE_CANARY_H_
#define LM_ENGINE_REMOTE_CANARY_H_

#include <string>

#include "engine/runtime/request.h"

namespace lm {

// kExtraction is asked for as kSchema. REQUIRES: kind != kNone.
RequestSpec CanaryOf(AnswerConstraint::Kind kind);
std::string CanaryAnswer(AnswerConstraint::Kind kind);

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_CANARY_H_
