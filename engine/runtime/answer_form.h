// The one form that constrained answers have, whoever wrote them.
#ifndef LM_ENGINE_RUNTIME_ANSWER_FORM_H_
#define LM_ENGINE_RUNTIME_ANSWER_FORM_H_

#include <string>

#include "absl/strings/string_view.h"
#include "engine/base/json.h"
#include "engine/grammar/grammar.h"
#include "engine/runtime/generation_options.h"

namespace lm {

// Whether answers of the constraint are JSON.
bool IsJson(AnswerConstraint::Kind kind);

// JSON as an answer of ours has it (grammar.h), numbers above all; but all their digits are kept.
std::string CanonicalJson(const Json& json);

// Whether `text` is an answer of the constraint, whose grammar is given: one of the grammar's
// texts, or, of a schema, one but for its numbers. Servers write numbers that local answers do not
// have: with more digits, or with an exponent beside a bound. Those are as good where they are
// valid against the schema.
bool IsAnswer(const AnswerConstraint& constraint, const Grammar& grammar, absl::string_view text);

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_ANSWER_FORM_H_
