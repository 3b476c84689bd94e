// From a RegexTree to a Fragment.
#ifndef LM_ENGINE_GRAMMAR_REGEX_COMPILER_H_
#define LM_ENGINE_GRAMMAR_REGEX_COMPILER_H_

#include "absl/status/statusor.h"
#include "engine/grammar/automaton_builder.h"
#include "engine/grammar/regex_tree.h"
#include "engine/grammar/text_form.h"

namespace lm {

// The texts that `tree` matches as a whole, in `form`. Errors: Cancelled; a limit of the builder.
absl::StatusOr<Fragment> CompileRegexTree(const RegexTree& tree, TextForm form,
                                          AutomatonBuilder* builder);

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_REGEX_COMPILER_H_
