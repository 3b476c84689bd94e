// A first question of which there is only one right answer: whether a server keeps to a kind of
// constraint, or ignores it in silence.
#ifndef LM_ENGINE_REMOTE_CANARY_H_
#define LM_ENGINE_REMOTE_CANARY_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/runtime/request.h"

namespace lm {

// kExtraction is asked for as kSchema. `salt` pays for it. `max_tokens` are those of the answer
// that it is asked for, or so: a model that reasons takes more than the word has. REQUIRES: kind !=
// kNone.
RequestSpec CanaryOf(AnswerConstraint::Kind kind, absl::string_view salt, int32_t max_tokens);
std::string CanaryAnswer(AnswerConstraint::Kind kind);

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_CANARY_H_
