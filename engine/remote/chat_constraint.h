// Constraints in the dialects of servers, and answers held to them.
#ifndef LM_ENGINE_REMOTE_CHAT_CONSTRAINT_H_
#define LM_ENGINE_REMOTE_CHAT_CONSTRAINT_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/json.h"
#include "engine/grammar/grammar.h"
#include "engine/remote/remote_options.h"
#include "engine/runtime/generation_options.h"

namespace lm {

// What a request says so that its answer keeps to the constraint. InvalidArgument, naming it, for
// one that the dialect has no word for.
absl::StatusOr<Json::Object> ConstraintMembers(const AnswerConstraint& constraint, Dialect dialect);

// Holds *text, an answer of a server that was spoken to in `dialect`, to its constraint, whose
// grammar is given, and gives it its one form (IsAnswer holds). White space around one of several
// choices is taken off. What the dialect wraps may come bare; what is wrapped counts as what is
// inside. FailedPrecondition where it does not fit.
absl::Status ProveAnswer(const AnswerConstraint& constraint, const Grammar& grammar,
                         Dialect dialect, std::string* text);

// The text that a constrained answer stands for: some dialects know JSON only, and wrap others in
// it. In its one form, where it is JSON. nullopt where it is no such answer.
std::optional<std::string> UnwrapAnswer(const AnswerConstraint& constraint, Dialect dialect,
                                        std::string text);

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_CHAT_CONSTRAINT_H_
