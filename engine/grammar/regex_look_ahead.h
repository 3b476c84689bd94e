// Look-ahead at the beginning of a regular expression: each one is a set of whole texts, to be
// intersected with those of what follows, or taken away from them.
//
//   ^(?=.*\d)(?!.*\s).{8,}$       .{8,} and [^]*, with \d behind some of it, less what has a \s
#ifndef LM_ENGINE_GRAMMAR_REGEX_LOOK_AHEAD_H_
#define LM_ENGINE_GRAMMAR_REGEX_LOOK_AHEAD_H_

#include <vector>

#include "absl/status/statusor.h"
#include "engine/grammar/automaton_builder.h"
#include "engine/grammar/regex_tree.h"
#include "engine/grammar/text_form.h"

namespace lm {

// In one expression: more are refused.
inline constexpr size_t kMaxLookAheads = 20;

struct LookAhead {
  RegexTree tree;  // of the whole text: what is looked for, and anything behind it
  bool negated = false;
};

// The texts of `tree` for which all of these hold. InvalidArgument: too large (see TextSet).
absl::StatusOr<Fragment> CompileWithLookAheads(const RegexTree& tree,
                                               const std::vector<LookAhead>& look_aheads,
                                               TextForm form, AutomatonBuilder* builder);

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_REGEX_LOOK_AHEAD_H_
